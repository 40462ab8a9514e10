// Segments in the plain format, read and written by blocking calls: the pfs tier of a process
// without MPI, and the nvme tier's twin where io_uring is refused.
#pragma once

#include <memory>
#include <string>

#include "core/logging.hpp"
#include "kvstream/tier.hpp"
#include "tiers/nvme_tier.hpp"
#include "tiers/slot_store.hpp"
#include "tiers/slot_store_posix.hpp"

namespace kvstream {

/// For tests; the defaults take the best that the system gives.
struct PlainPfsOptions {
  bool allow_direct = true;  ///< false: as if O_DIRECT were refused
  Nanos follow_interval_ns = kSecond;
  Nanos dead_after_ns = 60 * kSecond;
  std::shared_ptr<FileOpener> opener;  ///< of PosixHandles; empty: the tier's own
};

/// Makes the pfs tier for processes without MPI; also reads what the HDF5 flavour wrote.
TierFactory plain_pfs_tier_factory(PlainPfsOptions options = {});

/// See BlockingTier for threads. Buffered where O_DIRECT is refused, and then leaves nothing in
/// the page cache: no read-ahead, dropped after each read, written back and dropped after each
/// write.
class PlainPfsTier final : public BlockingTier {
 public:
  static Result<std::unique_ptr<PlainPfsTier>> open(const TierSpec& spec,
                                                    const TierContext& context,
                                                    const PlainPfsOptions& options);
  /// The nvme tier with threads in place of a ring.
  static Result<std::unique_ptr<PlainPfsTier>> open_nvme(const TierSpec& spec,
                                                         const TierContext& context,
                                                         const NvmeOptions& options);

  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t size_bytes) override { return store_->reserve(size_bytes); }
  void free(SlotRef at) override { store_->free(at); }
  Result<std::uint32_t> read(const ReadOp& op) override;
  Status write(const WriteOp& op) override;
  std::size_t changes(std::span<CatalogChange> out) override { return store_->changes(out); }
  void recheck(const CatalogChange& seen) override { store_->recheck(seen); }
  Status chore() override { return store_->chore(); }
  TierReport report() const override;

 private:
  PlainPfsTier() = default;
  Status open_store(SlotStoreOptions options);
  Status write_bytes(const WriteOp& op, const SlotAddress& address) const;
  Status settle_written(int fd, std::uint64_t offset_bytes, std::uint32_t size_bytes) const;
  Status failed(Status status) const;

  TierTraits traits_;
  Caching caching_ = Caching::kDirect;
  bool on_network_ = false;
  const Clock* clock_ = nullptr;
  std::unique_ptr<SlotStore> store_;
  mutable LogLimiter warn_limit_;
};

}  // namespace kvstream
