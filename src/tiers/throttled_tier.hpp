// A wrapper that makes a tier as slow as it is told, smoothly.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"
#include "tiers/throttle_control.hpp"
#include "tiers/tier_wrapper.hpp"

namespace kvstream {

/// Operations go to the tier inside at once; a completion is held back until the operation's turn
/// in the shared bucket has come, and then for the latency. With bypass on nothing is held back.
///
/// Called as Tier says. At most traits().in_flight_max operations, those held back included. The
/// traits are those of the tier inside, but bytes are never to be had in place, around the limit,
/// and the limit is a device of its own.
class ThrottledTier final : public TierWrapper {
 public:
  ThrottledTier(std::unique_ptr<Tier> inner, std::shared_ptr<ThrottleControl> control,
                const Clock& clock);

  const TierTraits& traits() const override { return traits_; }
  std::size_t submit_reads(std::span<const ReadOp> ops) override;
  std::size_t submit_writes(std::span<const WriteOp> ops) override;
  std::size_t poll(std::span<Completion> out) override;
  /// Exact to the nanosecond; operations that the tier inside still works on are its to announce.
  Nanos next_event() const override;
  const std::byte* view(SlotRef) const override { return nullptr; }
  /// Adds e.g. "+throttled(500 MB/s, 400 MB/s)" to the mode.
  TierReport report() const override;

  const std::shared_ptr<ThrottleControl>& control() const { return control_; }

 private:
  struct Held {
    Nanos due = 0;
    std::uint64_t order = 0;
    Completion done;
    bool operator>(const Held& other) const {
      return due != other.due ? due > other.due : order > other.order;
    }
  };
  std::size_t room() const;
  template <class Op>
  void reserve_turns(std::span<const Op> ops, Direction direction);
  void collect();

  std::shared_ptr<ThrottleControl> control_;
  const Clock& clock_;
  TierTraits traits_;
  absl::flat_hash_map<std::uint64_t, Nanos> due_;  ///< of operations that are inside
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
  std::uint64_t order_ = 0;
};

}  // namespace kvstream
