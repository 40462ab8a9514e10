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
  const std::size_t mapped_bytes = round_up(count * slab_bytes, kHugePageBytes);
  if (Status fits = check_memory(mapped_bytes, "the buffer pool"); !fits.is_ok()) {
    return failure(std::move(fits));
  }
  Result<std::byte*> base = map_aligned(mapped_bytes, -1);
  if (!base) return failure(base.error());

  std::unique_ptr<BufferPool> pool(new BufferPool);
  pool->base_ = *base;
  pool->mapped_bytes_ = mapped_bytes;
  pool->slab_bytes_ = static_cast<std::uint32_t>(slab_bytes);
  pool->count_ = static_cast<std::uint32_t>(count);
  std::string node = "no NUMA binding";
  if (options.numa_node >= 0) {
    const Status bound = prefer_numa_node({*base, mapped_bytes}, options.numa_node);
    if (bound.is_ok()) {
      node = fmt::format("node {}", options.numa_node);
    } else {
      logger("memory").warn("{}; memory comes from any node", bound.message());
    }
  }
  if (Status touched = populate({*base, mapped_bytes}); !touched.is_ok()) {
    return failure(std::move(touched));
  }
  pool->mode_ = fmt::format("{}, {}", page_mode({*base, mapped_bytes}), node);
  pool->next_ = std::vector<std::atomic<std::uint32_t>>(count);
  // Handed out from the lowest address up.
  for (std::uint32_t index = pool->count_; index-- > 0;) {
    pool->give(*base + std::size_t{index} * slab_bytes);
  }
  return pool;
}

BufferPool::~BufferPool() {
  if (!abandoned_) unmap(base_, mapped_bytes_);
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
