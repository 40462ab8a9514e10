// Segments as HDF5 files: what h5dump and h5py can read.
#pragma once

#include <memory>

#include "mpi_tiers/mpi_session.hpp"
#include "tiers/segment_format.hpp"

namespace kvstream {

/// One file a segment, made over MPI_COMM_SELF so that HDF5's collective calls are local: dataset
/// `slots` [n, slot_bytes] of bytes, contiguous, allocated early, never filled, aligned to 1 MiB;
/// attributes of the root group say what it is. HDF5 is closed again before create() returns: the
/// bytes of slots move past it, by MpiFile or positioned reads. Any thread; calls take turns.
class Hdf5SegmentFormat final : public SegmentFormat {
 public:
  explicit Hdf5SegmentFormat(std::shared_ptr<const MpiSession> session);

  FormatId id() const override { return FormatId::kHdf5; }
  std::uint64_t file_bytes_max(std::uint32_t slots, std::uint32_t slot_bytes) const override;
  Result<SegmentMade> create(const SegmentSpec& spec) const override;

 private:
  std::shared_ptr<const MpiSession> session_;
};

}  // namespace kvstream
