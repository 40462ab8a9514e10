// The nvme tier: a node-local slot store behind io_uring.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/logging.hpp"
#include "kvstream/tier.hpp"
#include "tiers/slot_store.hpp"
#include "tiers/slot_store_posix.hpp"
#include "tiers/uring.hpp"

namespace kvstream {

enum class IoEngine : std::uint8_t { kAuto, kThreads };

/// For tests; the defaults take the best that the system gives.
struct NvmeOptions {
  IoEngine engine = IoEngine::kAuto;  ///< kThreads: as if io_uring were refused
  bool allow_direct = true;           ///< false: as if O_DIRECT were refused
  Nanos follow_interval_ns = kSecond;
  std::shared_ptr<FileOpener> opener;  ///< of PosixHandles; empty: the tier's own
};

/// Makes NvmeTiers, or their BlockingTier twin (threads, pread and pwrite) where io_uring is
/// refused; report().mode says which: "io_uring+O_DIRECT", "threads+buffered", ...
TierFactory nvme_tier_factory(NvmeOptions options = {});

/// What a file tier over a node-local store says of itself.
Result<TierTraits> nvme_traits(const TierSpec& spec, Caching caching);
SlotStoreOptions nvme_store_options(const TierSpec& spec, const TierContext& context,
                                    Caching caching, const NvmeOptions& options);

/// See Tier for threads. One ring, used by the progress thread alone; at most 64 operations in
/// flight. Own slots and those of the node's other ranks are read alike.
class NvmeTier final : public Tier {
 public:
  /// kUnavailable where io_uring is refused: take the twin.
  static Result<std::unique_ptr<NvmeTier>> open(const TierSpec& spec, const TierContext& context,
                                                const NvmeOptions& options);
  ~NvmeTier() override;

  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t size_bytes) override { return store_->reserve(size_bytes); }
  void free(SlotRef at) override { store_->free(at); }
  std::size_t submit_reads(std::span<const ReadOp> ops) override;
  std::size_t submit_writes(std::span<const WriteOp> ops) override;
  std::size_t poll(std::span<Completion> out) override;
  int wait_fd() const override { return ring_->event().fd(); }
  Nanos next_event() const override;
  const std::byte* view(SlotRef) const override { return nullptr; }
  std::size_t changes(std::span<CatalogChange> out) override { return store_->changes(out); }
  void recheck(const CatalogChange& seen) override { store_->recheck(seen); }
  Status chore() override { return store_->chore(); }
  TierReport report() const override;

 private:
  /// A buffered operation goes on after its bytes: they are sent to the device and dropped from
  /// the page cache.
  enum class Phase : std::uint8_t { kBytes, kSync, kDrop };
  struct Op {
    bool is_write = false;
    Phase phase = Phase::kBytes;
    std::uint8_t retries = 0;
    std::uint32_t io_bytes = 0;
    WriteOp write;  ///< of a read: id and size_bytes only
    SlotAddress address;
    std::vector<iovec> spans;
  };

  NvmeTier() = default;
  void start(std::uint32_t index);
  void prepare(std::uint32_t index);
  void send();
  void handle(std::uint32_t index, std::int32_t result);
  void finish(std::uint32_t index, const Status& status);
  void refuse(std::uint64_t id, const Status& status);
  void log_failure(const Status& status);

  TierTraits traits_;
  Caching caching_ = Caching::kDirect;
  const Clock* clock_ = nullptr;
  std::unique_ptr<SlotStore> store_;
  std::unique_ptr<Uring> ring_;
  std::vector<Op> ops_;
  std::vector<std::uint32_t> idle_;     ///< indices of ops_ that are not in use
  std::deque<std::uint32_t> prepared_;  ///< not yet taken by the kernel, in order
  std::deque<Completion> done_;
  LogLimiter warn_limit_;
};

}  // namespace kvstream
