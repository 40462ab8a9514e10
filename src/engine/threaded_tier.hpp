// The adapter that makes a BlockingTier a Tier.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/tier.hpp"

namespace kvstream {

/// Runs traits().io_threads threads inside the blocking tier's read() and write(); bounded by
/// traits().in_flight_max operations. Owned by the engine, called as Tier says.
///
/// close() waits for the threads; one that is stuck in the kernel is abandoned together with the
/// tier and the memory it works on: they stay alive until the process ends.
class ThreadedTier final : public Tier {
 public:
  static std::unique_ptr<ThreadedTier> open(std::unique_ptr<BlockingTier> tier, const Clock& clock);
  ~ThreadedTier() override;

  const TierTraits& traits() const override;
  Result<SlotRef> reserve(std::uint32_t size_bytes) override;
  void free(SlotRef at) override;
  std::size_t submit_reads(std::span<const ReadOp> ops) override;
  std::size_t submit_writes(std::span<const WriteOp> ops) override;
  std::size_t poll(std::span<Completion> out) override;
  int wait_fd() const override;
  Nanos next_event() const override { return kNever; }
  const std::byte* view(SlotRef) const override { return nullptr; }
  std::size_t changes(std::span<CatalogChange> out) override;
  void recheck(const CatalogChange& seen) override;
  Status chore() override;
  TierReport report() const override;

  /// Ends the threads after what is queued; true when all ended within `timeout`. After it nothing
  /// may be submitted. Called once at most; the destructor calls it with 30 s.
  bool close(Nanos timeout);

 private:
  struct Shared;
  explicit ThreadedTier(std::shared_ptr<Shared> shared);

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
  std::uint32_t in_flight_ = 0;  ///< progress thread only
};

/// What a factory made, as a Tier; `adapter` is `tier` itself where the calls block, else null.
struct AdaptedTier {
  std::unique_ptr<Tier> tier;
  ThreadedTier* adapter = nullptr;
};
AdaptedTier adapt(AnyTier made, const Clock& clock);

}  // namespace kvstream
