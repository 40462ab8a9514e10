// Host memory: equal slots in one shared arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kvstream/tier.hpp"
#include "memory/arena.hpp"

namespace kvstream {

/// Memory of this rank, so its bytes are trusted and may be used in place (view()).
///
/// Owned by the engine, called as Tier says. Bounded by the arena: cap_bytes / slot_bytes slots,
/// all there from the start. The copy happens in submit_*, so an operation is over when it was
/// taken and waits only for poll(). Forgets everything at the end.
class HostTier final : public Tier {
 public:
  struct Options {
    std::string name = "host";
    std::string device_id = "host";
    std::uint64_t cap_bytes = 0;
    std::uint32_t block_bytes_max = 0;
    int numa_node = -1;  ///< -1 = do not bind
  };
  static Result<std::unique_ptr<HostTier>> open(const Options& options);

  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t size_bytes) override;
  void free(SlotRef at) override;
  std::size_t submit_reads(std::span<const ReadOp> ops) override;
  std::size_t submit_writes(std::span<const WriteOp> ops) override;
  std::size_t poll(std::span<Completion> out) override;
  int wait_fd() const override { return -1; }
  Nanos next_event() const override { return done_.empty() ? kNever : 0; }
  const std::byte* view(SlotRef at) const override;
  std::size_t changes(std::span<CatalogChange>) override { return 0; }
  void recheck(const CatalogChange&) override {}
  Status chore() override { return {}; }
  TierReport report() const override;

  /// The memory itself, for whoever lends it out.
  const Arena& arena() const { return *arena_; }

 private:
  /// A generation is odd while its slot is taken, even while it is free.
  struct Slot {
    std::uint64_t generation = 0;
    std::uint32_t written_bytes = 0;
  };

  HostTier(const Options& options, std::unique_ptr<Arena> arena, std::uint32_t slot_bytes,
           std::uint32_t slots);
  const Slot* find(SlotRef at) const;
  std::byte* bytes_of(SlotRef at) const;
  Code read(const ReadOp& op) const;
  Code write(const WriteOp& op);
  void finish(std::uint64_t id, Code code, std::uint32_t size_bytes);

  TierTraits traits_;
  std::unique_ptr<Arena> arena_;
  std::uint32_t slot_bytes_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;  ///< the last freed is taken first: it is warm in the cache
  std::deque<Completion> done_;      ///< at most in_flight_max
  std::atomic<std::uint64_t> used_slots_{0};
  std::atomic<std::uint64_t> errors_{0};
};

/// Of kind "host": cap_bytes is for each rank, the path is not used.
TierFactory host_tier_factory();

}  // namespace kvstream
