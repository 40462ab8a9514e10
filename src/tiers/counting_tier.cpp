#include "tiers/counting_tier.hpp"

#include <algorithm>
#include <utility>

namespace kvstream {

CountingTier::CountingTier(std::unique_ptr<Tier> inner) : TierWrapper(std::move(inner)) {}

Result<SlotRef> CountingTier::reserve(std::uint32_t size_bytes) {
  auto slot = inner().reserve(size_bytes);
  if (slot) {
    const std::lock_guard lock(mutex_);
    ++counts_.reserved;
  }
  return slot;
}

void CountingTier::free(SlotRef at) {
  inner().free(at);
  const std::lock_guard lock(mutex_);
  ++counts_.freed;
}

template <class Op>
void CountingTier::took(std::span<const Op> ops, Kind kind) {
  const std::lock_guard lock(mutex_);
  for (const Op& op : ops) {
    if (!in_flight_.try_emplace(op.id, Flight{kind, op.size_bytes}).second) ++counts_.breaches;
    ++side(kind).taken;
  }
  counts_.in_flight = in_flight_.size();
  counts_.in_flight_peak = std::max(counts_.in_flight_peak, counts_.in_flight);
}

std::size_t CountingTier::submit_reads(std::span<const ReadOp> ops) {
  const std::size_t taken = inner().submit_reads(ops);
  took(ops.first(taken), Kind::kRead);
  return taken;
}

std::size_t CountingTier::submit_writes(std::span<const WriteOp> ops) {
  const std::size_t taken = inner().submit_writes(ops);
  took(ops.first(taken), Kind::kWrite);
  return taken;
}

std::size_t CountingTier::poll(std::span<Completion> out) {
  const std::size_t count = inner().poll(out);
  const std::lock_guard lock(mutex_);
  for (const Completion& done : out.first(count)) {
    const auto found = in_flight_.find(done.id);
    if (found == in_flight_.end()) {
      ++counts_.breaches;
      continue;
    }
    Side& books = side(found->second.kind);
    ++books.completed;
    if (done.code != Code::kOk) {
      ++books.failed;
    } else {
      books.bytes += done.size_bytes;
      if (done.size_bytes != found->second.size_bytes) ++counts_.breaches;
    }
    in_flight_.erase(found);
  }
  counts_.in_flight = in_flight_.size();
  return count;
}

CountingTier::Counts CountingTier::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace kvstream
