#include "mpi_tiers/hdf5_segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include "mpi_tiers/mpi_file.hpp"
#include "tiers/slot_store_files.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kMib = 1ULL << 20U;
constexpr std::uint32_t kFormatVersion = 1;

/// Small segments (tests, tiny caps) are aligned to a slot's grain only.
std::uint64_t alignment_of(std::uint64_t data_bytes) {
  return data_bytes >= 16 * kMib ? kMib : 4096;
}

/// Closes an HDF5 identifier.
class Id {
 public:
  Id(hid_t id, herr_t (*closer)(hid_t)) : id_(id), closer_(closer) {}
  ~Id() {
    if (id_ >= 0) closer_(id_);
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }
  /// False when closing failed, which is when HDF5 writes late metadata.
  bool close() { return closer_(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  hid_t id_;
  herr_t (*closer_)(hid_t);
};

herr_t keep_text(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc != nullptr && *error->desc != '\0') {
    *static_cast<std::string*>(text) = error->desc;
  }
  return 0;
}

/// The one translation from HDF5's error stack: the innermost description.
Status hdf5_status(const std::string& what) {
  std::string text = "no description";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_text, &text);
  H5Eclear2(H5E_DEFAULT);
  return {Code::kIoError, fmt::format("failed to {} ({})", what, text)};
}

bool write_number(hid_t group, const char* name, std::uint64_t value) {
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Id attribute(H5Acreate2(group, name, H5T_STD_U64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                     H5Aclose);
  return attribute.ok() && H5Awrite(attribute.get(), H5T_NATIVE_UINT64, &value) >= 0;
}

bool write_text(hid_t group, const char* name, const std::string& value) {
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  if (H5Tset_size(type.get(), value.size() + 1) < 0) return false;
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Id attribute(H5Acreate2(group, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                     H5Aclose);
  return attribute.ok() && H5Awrite(attribute.get(), type.get(), value.c_str()) >= 0;
}

bool write_attributes(hid_t file, const SegmentSpec& spec, std::uint64_t data_offset) {
  return write_text(file, "kvstream_format", "slots") &&
         write_number(file, "format_version", kFormatVersion) &&
         write_text(file, "writer", spec.writer) && write_number(file, "number", spec.number) &&
         write_number(file, "slot_bytes", spec.slot_bytes) &&
         write_number(file, "namespace_fingerprint", spec.namespace_fingerprint) &&
         write_number(file, "data_offset", data_offset);
}

/// Makes the file with HDF5 and says where slot 0 lies. HDF5's mutex is held.
Result<std::uint64_t> make_file(const SegmentSpec& spec) {
  const std::uint64_t data_bytes = std::uint64_t{spec.slots} * spec.slot_bytes;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const MpiHints hints;
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (H5Pset_fapl_mpio(access.get(), MPI_COMM_SELF, hints.info()) < 0 ||
      H5Pset_alignment(access.get(), std::min<std::uint64_t>(data_bytes, 64 * 1024),
                       alignment_of(data_bytes)) < 0) {
    return failure(hdf5_status("prepare an HDF5 file over MPI"));
  }
  Id file(H5Fcreate(spec.path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  if (!file.ok()) return failure(hdf5_status(fmt::format("create {}", spec.path)));

  const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  const std::array<hsize_t, 2> shape = {spec.slots, spec.slot_bytes};
  const Id space(H5Screate_simple(2, shape.data(), nullptr), H5Sclose);
  Id slots(H5Dcreate2(file.get(), "slots", H5T_STD_U8LE, space.get(), H5P_DEFAULT, creation.get(),
                      H5P_DEFAULT),
           H5Dclose);
  const haddr_t offset = slots.ok() ? H5Dget_offset(slots.get()) : HADDR_UNDEF;
  if (offset == HADDR_UNDEF) {
    return failure(hdf5_status(fmt::format("allocate the slots of {}", spec.path)));
  }
  // Until the flush others see an empty file, and a crash would leave one.
  if (!write_attributes(file.get(), spec, offset) || H5Fflush(file.get(), H5F_SCOPE_GLOBAL) < 0 ||
      !slots.close() || !file.close()) {
    return failure(hdf5_status(fmt::format("write the header of {}", spec.path)));
  }
  return offset;
}

Result<SegmentMade> allocate(const SegmentSpec& spec, std::uint64_t data_offset) {
  const UniqueFd fd(::open(spec.path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0) {
    return failure(file_error("open again", spec.path, errno));
  }
  const std::uint64_t data_end =
      data_offset + std::uint64_t{spec.slots} * std::uint64_t{spec.slot_bytes};
  SegmentMade made;
  made.data_offset_bytes = data_offset;
  made.file_bytes = std::max(static_cast<std::uint64_t>(info.st_size), data_end);
  // Early allocation of HDF5 leaves holes.
  const auto allocated = preallocate(fd.get(), made.file_bytes, spec.path);
  if (!allocated) return failure(allocated.error());
  made.preallocated = *allocated;
  return made;
}

}  // namespace

Hdf5SegmentFormat::Hdf5SegmentFormat(std::shared_ptr<const MpiSession> session)
    : session_(std::move(session)) {}

std::uint64_t Hdf5SegmentFormat::file_bytes_max(std::uint32_t slots,
                                                std::uint32_t slot_bytes) const {
  const std::uint64_t data_bytes = std::uint64_t{slots} * slot_bytes;
  // HDF5's own records before the data, and at most a few kilobytes behind it.
  return data_bytes + std::max<std::uint64_t>(alignment_of(data_bytes), 12 * 1024) + 4096;
}

Result<SegmentMade> Hdf5SegmentFormat::create(const SegmentSpec& spec) const {
  UniqueFd fd(::open(spec.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.is_open()) return failure(file_error("make", spec.path, errno));
  // HDF5 cannot let go of a file whose header it could not write: room is tried first.
  const auto room = preallocate(fd.get(), file_bytes_max(spec.slots, spec.slot_bytes), spec.path);
  fd.reset();
  Result<SegmentMade> made;
  if (!room) {
    made = failure(room.error());
  } else {
    const std::lock_guard lock(mpi_files_mutex());
    const MpiSession::Call call(*session_);
    const auto offset = make_file(spec);
    made = offset ? allocate(spec, *offset) : failure(offset.error());
  }
  if (made && made->data_offset_bytes % 4096 == 0 &&
      made->file_bytes <= file_bytes_max(spec.slots, spec.slot_bytes)) {
    return made;
  }
  ::unlink(spec.path.c_str());
  if (!made) return made;
  return failure(Code::kIoError,
                 fmt::format("failed to create {} (HDF5 put {} B at {} in a file of {} B, which is "
                             "not what was planned)",
                             spec.path, std::uint64_t{spec.slots} * spec.slot_bytes,
                             made->data_offset_bytes, made->file_bytes));
}

}  // namespace kvstream
