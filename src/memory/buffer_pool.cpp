#include "memory/buffer_pool.hpp"

#include <fmt/format.h>

#include <limits>

#include "core/logging.hpp"
#include "memory/mapping.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kTagOne = std::uint64_t{1} << 32U;
constexpr std::uint64_t kIndexMask = kTagOne - 1;

}  // namespace

Result<std::unique_ptr<BufferPool>> BufferPool::open(Options options) {
  const std::uint64_t slab_bytes = round_up(options.slab_bytes, kSmallPageBytes);
  if (slab_bytes == 0 || slab_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return failure(Code::kInvalidArgument,
                   fmt::format("a slab of {} B is out of range", options.slab_bytes));
  }
  const std::uint64_t count = options.bytes / slab_bytes;
  if (count == 0 || count >= kIndexMask) {
    return failure(Code::kInvalidArgument,
                   fmt::format("a pool of {} B holds {} slabs of {} B; give it at least one slab",
                               options.bytes, count, slab_bytes));
  }
  std::unique_ptr<BufferPool> pool(new BufferPool);
  pool->mapped_bytes_ = round_up(count * slab_bytes, kHugePageBytes);
  pool->slab_bytes_ = static_cast<std::uint32_t>(slab_bytes);
  pool->count_ = static_cast<std::uint32_t>(count);
  if (options.backing == Backing::kNone) {
    auto base = reserve_addresses(pool->mapped_bytes_);
    if (!base) return failure(base.error());
    pool->base_ = *base;
    pool->mode_ = "modelled, no memory";
  } else if (Status mapped = pool->map_memory(options.numa_node); !mapped.is_ok()) {
    return failure(std::move(mapped));
  }
  pool->next_ = std::vector<std::atomic<std::uint32_t>>(count);
  // Handed out from the lowest address up.
  for (std::uint32_t index = pool->count_; index-- > 0;) {
    pool->give(pool->base_ + std::size_t{index} * slab_bytes);
  }
  return pool;
}

Status BufferPool::map_memory(int numa_node) {
  if (Status fits = check_memory(mapped_bytes_, "the buffer pool"); !fits.is_ok()) return fits;
  Result<std::byte*> base = map_aligned(mapped_bytes_, -1);
  if (!base) return base.error();
  base_ = *base;
  const Span all{base_, mapped_bytes_};
  std::string node = "no NUMA binding";
  if (numa_node >= 0) {
    const Status bound = prefer_numa_node(all, numa_node);
    if (bound.is_ok()) {
      node = fmt::format("node {}", numa_node);
    } else {
      logger("memory").warn("{}; memory comes from any node", bound.message());
    }
  }
  if (Status touched = populate(all); !touched.is_ok()) return touched;
  mode_ = fmt::format("{}, {}", page_mode(all), node);
  return Status::ok();
}

BufferPool::~BufferPool() {
  if (!abandoned_ && base_ != nullptr) unmap(base_, mapped_bytes_);
}

std::byte* BufferPool::take() noexcept {
  std::uint64_t head = head_.load(std::memory_order_acquire);
  for (;;) {
    const std::uint64_t link = head & kIndexMask;
    if (link == 0) return nullptr;
    // Another thread may take this slab meanwhile and change its link: then the tag has moved on
    // and the exchange fails.
    const std::uint64_t next = next_[link - 1].load(std::memory_order_relaxed);
    const std::uint64_t wanted = ((head & ~kIndexMask) + kTagOne) | next;
    if (head_.compare_exchange_weak(head, wanted, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      free_.fetch_sub(1, std::memory_order_relaxed);
      return base_ + (link - 1) * std::size_t{slab_bytes_};
    }
  }
}

void BufferPool::give(std::byte* slab) noexcept {
  if (slab == nullptr) return;
  // Counted before it can be taken again, so that the count never goes below zero.
  free_.fetch_add(1, std::memory_order_relaxed);
  const auto index = static_cast<std::uint32_t>((slab - base_) / slab_bytes_);
  std::uint64_t head = head_.load(std::memory_order_acquire);
  for (;;) {
    next_[index].store(static_cast<std::uint32_t>(head & kIndexMask), std::memory_order_relaxed);
    const std::uint64_t wanted = ((head & ~kIndexMask) + kTagOne) | (index + 1);
    if (head_.compare_exchange_weak(head, wanted, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      return;
    }
  }
}

}  // namespace kvstream
