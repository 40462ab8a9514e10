// A wrapper that keeps the books of a tier and checks them.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "tiers/tier_wrapper.hpp"

namespace kvstream {

/// Counts operations and bytes, and each breach of "every operation that was taken completes
/// exactly once": an id in flight twice, a completion of an id that is not in flight, a good
/// completion of another size. Called as Tier says; counts() from any thread. Bounded by what the
/// tier inside takes.
class CountingTier final : public TierWrapper {
 public:
  struct Side {
    std::uint64_t taken = 0, completed = 0, failed = 0;
    std::uint64_t bytes = 0;  ///< of good completions
  };
  struct Counts {
    Side reads, writes;
    std::uint64_t reserved = 0, freed = 0;
    std::uint64_t in_flight = 0, in_flight_peak = 0;
    std::uint64_t breaches = 0;
  };

  explicit CountingTier(std::unique_ptr<Tier> inner);

  Result<SlotRef> reserve(std::uint32_t size_bytes) override;
  void free(SlotRef at) override;
  std::size_t submit_reads(std::span<const ReadOp> ops) override;
  std::size_t submit_writes(std::span<const WriteOp> ops) override;
  std::size_t poll(std::span<Completion> out) override;

  Counts counts() const;

 private:
  enum class Kind : std::uint8_t { kRead, kWrite };
  struct Flight {
    Kind kind;
    std::uint32_t size_bytes;
  };
  template <class Op>
  void took(std::span<const Op> ops, Kind kind);
  Side& side(Kind kind) { return kind == Kind::kRead ? counts_.reads : counts_.writes; }

  mutable std::mutex mutex_;  ///< guards what follows
  Counts counts_;
  absl::flat_hash_map<std::uint64_t, Flight> in_flight_;
};

}  // namespace kvstream
