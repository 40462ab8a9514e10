// A wrapper that does to a tier what drives, links and file systems do.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <vector>

#include "kvstream/clock.hpp"
#include "tiers/tier_wrapper.hpp"

namespace kvstream {

enum class Fault : std::uint8_t {
  kNone,
  kError,  ///< kIoError; the bytes may have landed
  kShort,  ///< kIoError with fewer bytes; the rest of the destination is garbage
  kFlip,   ///< reads: good, but one bit of the landed bytes is wrong
  kDelay,  ///< reaches the tier inside later, so its bytes land late too
  kStall,  ///< as kDelay, longer or for ever (until release_stalled())
};

/// What goes wrong: by chance, and at given operations.
struct FaultPlan {
  /// Probabilities for each operation; their sum is at most 1.
  struct Odds {
    double error = 0, short_transfer = 0, flip = 0, delay = 0, stall = 0;
  };
  /// At the op-th operation that the tier takes, counted from 0 over reads and writes.
  struct Scripted {
    std::uint64_t op = 0;
    Fault fault = Fault::kNone;
    Nanos duration_ns = 0;  ///< of kDelay and kStall; kNever = until release_stalled()
  };
  std::uint64_t seed = 1;
  Odds reads, writes;
  Nanos delay_ns = 10 * kMillisecond;
  Nanos stall_ns = kNever;
  std::vector<Scripted> script;
};

/// Seeded: the same plan and the same calls give the same faults. A write never flips bits (its
/// source is not ours to change); a flip that is asked of one does nothing and is not counted.
///
/// Called as Tier says; set_plan and release_stalled by the same thread, counts() by any. At most
/// traits().in_flight_max operations, delayed and stalled ones included. The traits are those of
/// the tier inside, but bytes are neither trusted nor to be had in place, around the faults.
class FaultyTier final : public TierWrapper {
 public:
  struct Counts {
    std::uint64_t ops = 0;
    std::uint64_t errors = 0, shorts = 0, flips = 0, delays = 0, stalls = 0;
  };

  FaultyTier(std::unique_ptr<Tier> inner, FaultPlan plan, const Clock& clock);

  const TierTraits& traits() const override { return traits_; }
  std::size_t submit_reads(std::span<const ReadOp> ops) override;
  std::size_t submit_writes(std::span<const WriteOp> ops) override;
  std::size_t poll(std::span<Completion> out) override;
  Nanos next_event() const override;
  const std::byte* view(SlotRef) const override { return nullptr; }
  TierReport report() const override;

  /// For operations that start later; the count of operations goes on.
  void set_plan(FaultPlan plan);
  /// What is stalled or delayed reaches the tier inside at the next poll().
  void release_stalled();
  Counts counts() const;

 private:
  /// An operation in flight; read or write, the other one is empty.
  struct Flight {
    ReadOp read;
    WriteOp write;
    bool is_read = true;
    Fault fault = Fault::kNone;
    std::uint64_t id() const { return is_read ? read.id : write.id; }
  };
  struct Waiting {
    Nanos due = 0;
    std::uint64_t order = 0;
    Flight flight;
    bool operator>(const Waiting& other) const {
      return due != other.due ? due > other.due : order > other.order;
    }
  };
  struct Draw {
    Fault fault = Fault::kNone;
    Nanos duration_ns = 0;
  };

  std::size_t room() const;
  Draw draw(const FaultPlan::Odds& odds);
  /// False when the tier inside is full and this operation is neither delayed nor taken.
  bool take(const Flight& flight);
  bool pass_inside(const Flight& flight);
  void pass_due();
  Completion spoil(const Flight& flight, Completion done);

  FaultPlan plan_;
  const Clock& clock_;
  TierTraits traits_;
  std::mt19937_64 random_;
  std::optional<double> chance_;  ///< drawn for an operation that was refused: it comes again
  bool refused_ = false;          ///< the tier inside was full at the last poll()
  std::uint64_t order_ = 0;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
  absl::flat_hash_map<std::uint64_t, Flight> inside_;
  std::atomic<std::uint64_t> ops_{0}, errors_{0}, shorts_{0}, flips_{0}, delays_{0}, stalls_{0};
};

}  // namespace kvstream
