// A segment file behind MPI-IO, with the page cache in our hands.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mpi_tiers/mpi_session.hpp"
#include "tiers/slot_store.hpp"

namespace kvstream {

/// Held around opening and closing MPI files and around all of HDF5, neither of which can do it in
/// two threads at once. Reads and writes go without.
std::mutex& mpi_files_mutex();

/// The hints for a file that one rank reads and writes in whole blocks: no data sieving, no
/// collective buffering.
class MpiHints {
 public:
  MpiHints();
  ~MpiHints();
  MpiHints(const MpiHints&) = delete;
  MpiHints& operator=(const MpiHints&) = delete;
  MPI_Info info() const { return info_; }

 private:
  MPI_Info info_ = MPI_INFO_NULL;
};

/// What became known of MPI-IO here, for reports. Any thread.
struct MpiIoFacts {
  std::string component;          ///< "romio321", "ompio", ...; what was asked for, until a file
                                  ///< has been opened
  bool descriptors_found = true;  ///< false once a file's descriptor was not found
};
MpiIoFacts mpi_io_facts();
/// Open MPI crashes at the first file when OMPI_MCA_io names a component that it has not got.
Status check_io_component();

/// One open segment over MPI_COMM_SELF: contiguous bytes, any thread, several at once when the
/// session says so. MPI-IO goes through the page cache, which would be a hidden second host tier:
/// nothing that was read or written here stays in it, and read-ahead is off.
class MpiFile final : public SegmentHandle {
 public:
  static Result<std::shared_ptr<MpiFile>> open(std::shared_ptr<const MpiSession> session,
                                               const std::string& path, Access access);
  ~MpiFile() override;
  MpiFile(const MpiFile&) = delete;
  MpiFile& operator=(const MpiFile&) = delete;

  /// A short read is an error.
  Status read(std::uint64_t offset_bytes, Span into) const;
  /// Takes what read() brought out of the page cache. Whole cache blocks of 4 KiB only.
  void forget(std::uint64_t offset_bytes, std::uint64_t size_bytes) const;
  /// Returns once the bytes have left memory for the device or the server.
  Status write(std::uint64_t offset_bytes, ConstSpan from) const;

 private:
  MpiFile(std::shared_ptr<const MpiSession> session, std::string path)
      : session_(std::move(session)), path_(std::move(path)) {}
  Status find_descriptor(Access access, const std::vector<int>& fds_before);
  Status settle(std::uint64_t offset_bytes, std::uint64_t size_bytes) const;

  std::shared_ptr<const MpiSession> session_;
  std::string path_;
  MPI_File file_ = MPI_FILE_NULL;
  int fd_ = -1;
  bool own_fd_ = false;  ///< MPI's was not found: a second one, which cannot stop its read-ahead
  bool network_ = false;
  std::uint64_t call_bytes_max_ = 0;
};

/// Makes MpiFiles for a SlotStore.
class MpiFileOpener final : public FileOpener {
 public:
  explicit MpiFileOpener(std::shared_ptr<const MpiSession> session)
      : session_(std::move(session)) {}
  Result<std::shared_ptr<SegmentHandle>> open(const std::string& path, Access access) override;

 private:
  std::shared_ptr<const MpiSession> session_;
};

}  // namespace kvstream
