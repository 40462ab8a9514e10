#include "tiers/host_tier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/logging.hpp"
#include "core/units.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kSlotAlignBytes = 4096;
constexpr std::uint32_t kInFlightMax = 64;

TierTraits traits_of(const HostTier::Options& options) {
  TierTraits traits;
  traits.kind = "host";
  traits.name = options.name;
  traits.device_id = options.device_id;
  traits.in_flight_max = kInFlightMax;
  traits.direct_landing = true;
  traits.addressable = true;
  traits.trusted = true;
  return traits;
}

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::open(const Options& options) {
  if (options.block_bytes_max == 0) {
    return failure(Code::kInvalidArgument,
                   fmt::format("tier {} was opened for blocks of 0 B", options.name));
  }
  const std::uint64_t slot_bytes = (std::uint64_t{options.block_bytes_max} + kSlotAlignBytes - 1) /
                                   kSlotAlignBytes * kSlotAlignBytes;
  const std::uint64_t slots = options.cap_bytes / slot_bytes;
  if (slots == 0 || slots > UINT32_MAX || slot_bytes > UINT32_MAX) {
    return failure(
        Code::kInvalidArgument,
        fmt::format("tier {} of {} cannot be cut into slots of {}; give it a cap of at "
                    "least one block",
                    options.name, format_size(options.cap_bytes), format_size(slot_bytes)));
  }
  Arena::Options memory;
  memory.bytes = slots * slot_bytes;
  memory.numa_node = options.numa_node;
  memory.name = "kvstream-" + options.name;
  auto arena = Arena::open(memory);
  if (!arena) return failure(arena.error());
  return std::unique_ptr<HostTier>(new HostTier(options, std::move(*arena),
                                                static_cast<std::uint32_t>(slot_bytes),
                                                static_cast<std::uint32_t>(slots)));
}

HostTier::HostTier(const Options& options, std::unique_ptr<Arena> arena, std::uint32_t slot_bytes,
                   std::uint32_t slots)
    : traits_(traits_of(options)),
      arena_(std::move(arena)),
      slot_bytes_(slot_bytes),
      slots_(slots),
      free_(slots) {
  std::iota(free_.rbegin(), free_.rend(), 0U);
}

Result<SlotRef> HostTier::reserve(std::uint32_t size_bytes) {
  if (size_bytes > slot_bytes_) {
    return failure(Code::kInvalidArgument,
                   fmt::format("a block of {} B is larger than the {} B of a slot of tier {}",
                               size_bytes, slot_bytes_, traits_.name));
  }
  if (free_.empty()) {
    return failure(Code::kNoSpace,
                   fmt::format("all {} slots of tier {} are taken", slots_.size(), traits_.name));
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  used_slots_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[index];
  ++slot.generation;
  slot.written_bytes = 0;
  return SlotRef{0, index, slot.generation};
}

void HostTier::free(SlotRef at) {
  if (find(at) == nullptr) return;
  ++slots_[at.slot].generation;
  free_.push_back(at.slot);
  used_slots_.fetch_sub(1, std::memory_order_relaxed);
}

const HostTier::Slot* HostTier::find(SlotRef at) const {
  if (at.segment != 0 || at.slot >= slots_.size() || at.generation % 2 == 0) return nullptr;
  const Slot& slot = slots_[at.slot];
  return slot.generation == at.generation ? &slot : nullptr;
}

std::byte* HostTier::bytes_of(SlotRef at) const {
  return arena_->region().data + std::size_t{at.slot} * slot_bytes_;
}

const std::byte* HostTier::view(SlotRef at) const {
  return find(at) != nullptr ? bytes_of(at) : nullptr;
}

Code HostTier::read(const ReadOp& op) const {
  const Slot* slot = find(op.at);
  if (slot == nullptr) return Code::kNotFound;
  if (op.size_bytes > slot->written_bytes) return Code::kIoError;
  const std::byte* from = bytes_of(op.at);
  std::size_t left = op.size_bytes;
  for (const Span& span : op.into) {
    const std::size_t part = std::min(left, span.size_bytes);
    std::memcpy(span.data, from, part);
    from += part;
    left -= part;
  }
  return left == 0 ? Code::kOk : Code::kInvalidArgument;
}

Code HostTier::write(const WriteOp& op) {
  if (find(op.at) == nullptr) return Code::kNotFound;
  if (op.size_bytes > slot_bytes_) return Code::kInvalidArgument;
  std::memcpy(bytes_of(op.at), op.from, op.size_bytes);
  slots_[op.at.slot].written_bytes = op.size_bytes;
  return Code::kOk;
}

void HostTier::finish(std::uint64_t id, Code code, std::uint32_t size_bytes) {
  if (code != Code::kOk) {
    const auto seen = errors_.fetch_add(1, std::memory_order_relaxed);
    // Only a stale location or a caller's mistake gets here; the first of them tells enough.
    if (seen == 0) {
      logger("tiers").warn("failed to move {} B in tier {} ({}); block treated as a miss",
                           size_bytes, traits_.name, to_string(code));
    }
  }
  done_.push_back({id, code, code == Code::kOk ? size_bytes : 0});
}

std::size_t HostTier::submit_reads(std::span<const ReadOp> ops) {
  const std::size_t taken = std::min(ops.size(), traits_.in_flight_max - done_.size());
  for (const ReadOp& op : ops.first(taken)) finish(op.id, read(op), op.size_bytes);
  return taken;
}

std::size_t HostTier::submit_writes(std::span<const WriteOp> ops) {
  const std::size_t taken = std::min(ops.size(), traits_.in_flight_max - done_.size());
  for (const WriteOp& op : ops.first(taken)) finish(op.id, write(op), op.size_bytes);
  return taken;
}

std::size_t HostTier::poll(std::span<Completion> out) {
  const std::size_t count = std::min(out.size(), done_.size());
  std::copy_n(done_.begin(), count, out.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

TierReport HostTier::report() const {
  TierReport report;
  report.capacity_bytes = std::uint64_t{slot_bytes_} * slots_.size();
  report.used_bytes = used_slots_.load(std::memory_order_relaxed) * slot_bytes_;
  report.free_bytes = report.capacity_bytes - report.used_bytes;
  report.errors = errors_.load(std::memory_order_relaxed);
  report.mode = arena_->mode();
  return report;
}

TierFactory host_tier_factory() {
  return [](const TierSpec& spec, const TierContext& context) -> Result<AnyTier> {
    HostTier::Options options;
    options.name = spec.name;
    options.device_id = "host:" + context.node;
    options.cap_bytes = spec.cap_bytes;
    options.block_bytes_max = context.block_bytes_max;
    auto tier = HostTier::open(options);
    if (!tier) return failure(tier.error());
    return AnyTier(std::unique_ptr<Tier>(std::move(*tier)));
  };
}

}  // namespace kvstream
