// The pfs tier over HDF5 and MPI-IO.
#pragma once

#include <memory>
#include <string>

#include "core/logging.hpp"
#include "kvstream/tier.hpp"
#include "mpi_tiers/mpi_session.hpp"
#include "tiers/slot_store.hpp"

namespace kvstream {

class MpiFile;

/// Blocks on a parallel file system, in segments that one process writes and any process reads
/// without it. Owned by the engine, which runs traits().io_threads threads in read() and write():
/// 8 where MPI granted MULTIPLE, else one. Bounded by the cap and by the SlotStore's bounds.
/// Everything but the moving of bytes is the SlotStore's. Must be closed before MPI is left.
class MpiPfsTier final : public BlockingTier {
 public:
  static Result<std::unique_ptr<MpiPfsTier>> open(std::shared_ptr<const MpiSession> session,
                                                  const TierSpec& spec, const TierContext& context);
  /// As open(), with the store's options given: tests want small segments and short times.
  static Result<std::unique_ptr<MpiPfsTier>> open_with(std::shared_ptr<const MpiSession> session,
                                                       const std::string& name,
                                                       SlotStoreOptions options);
  /// Options of a store for this tier, but for format and opener.
  static SlotStoreOptions store_options(const TierSpec& spec, const TierContext& context);

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
  MpiPfsTier(std::shared_ptr<const MpiSession> session, TierTraits traits)
      : session_(std::move(session)), traits_(std::move(traits)) {}
  Status read_spans(const MpiFile& file, const ReadOp& op, std::uint64_t offset_bytes) const;
  Status failed(Status status, const char* consequence);

  std::shared_ptr<const MpiSession> session_;
  TierTraits traits_;
  const Clock* clock_ = nullptr;
  std::unique_ptr<SlotStore> store_;
  LogLimiter error_lines_;
};

/// Makes MpiPfsTiers; MPI must have been entered by MpiSession::open() before.
TierFactory mpi_pfs_tier_factory();

}  // namespace kvstream
