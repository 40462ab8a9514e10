#include "mpi_tiers/mpi_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "core/logging.hpp"
#include "tiers/slot_store_files.hpp"

namespace kvstream {
namespace {

/// MPI-IO of this age breaks above 2 GiB a call.
constexpr std::uint64_t kCallBytesMax = 1ULL << 30U;
/// Read-ahead stays below this when it cannot be switched off.
constexpr std::uint64_t kCallBytesUngoverned = 1ULL << 20U;
constexpr std::uint64_t kCacheBlock = 4096;

std::atomic<bool> descriptors_found{true};
std::mutex component_mutex;
std::string component_seen;  // under component_mutex

std::vector<int> descriptors_of(const struct stat& file) {
  std::vector<int> fds;
  DIR* dir = ::opendir("/proc/self/fd");
  if (dir == nullptr) return fds;
  while (const dirent* entry = ::readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    struct stat seen {};
    if (entry->d_name[0] == '.' || fd == ::dirfd(dir) || ::fstat(fd, &seen) != 0) continue;
    if (seen.st_dev == file.st_dev && seen.st_ino == file.st_ino) fds.push_back(fd);
  }
  ::closedir(dir);
  return fds;
}

std::string component_asked() {
  const char* asked = std::getenv("OMPI_MCA_io");
  return asked == nullptr ? "default" : asked;
}

/// Whether Open MPI has registered an `io` component of this name: all that are installed before
/// the first file is opened, those in use after it.
bool component_known(const std::string& name) {
  int level = 0;
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return false;
  int index = -1;
  const bool known =
      MPI_T_cvar_get_index(("io_" + name + "_priority").c_str(), &index) == MPI_SUCCESS;
  MPI_T_finalize();
  return known;
}

/// To be called when a file is open.
void note_component() {
  const std::lock_guard lock(component_mutex);
  if (!component_seen.empty()) return;
  std::string used;
  for (const char* name : {"romio314", "romio321", "romio341", "ompio"}) {
    if (component_known(name)) used += used.empty() ? name : std::string(" or ") + name;
  }
  component_seen = used.empty() ? component_asked() : used;
}

std::uint64_t round_up(std::uint64_t value) {
  return (value + kCacheBlock - 1) / kCacheBlock * kCacheBlock;
}

}  // namespace

std::mutex& mpi_files_mutex() {
  static std::mutex mutex;
  return mutex;
}

MpiHints::MpiHints() {
  if (MPI_Info_create(&info_) != MPI_SUCCESS) return;
  for (const char* hint : {"romio_ds_read", "romio_ds_write", "romio_cb_read", "romio_cb_write"}) {
    MPI_Info_set(info_, hint, "disable");
  }
}

MpiHints::~MpiHints() {
  if (info_ != MPI_INFO_NULL) MPI_Info_free(&info_);
}

MpiIoFacts mpi_io_facts() {
  const std::lock_guard lock(component_mutex);
  return {component_seen.empty() ? component_asked() : component_seen, descriptors_found.load()};
}

Status check_io_component() {
  const std::string asked = component_asked();
  const bool one_name =
      !asked.empty() &&
      std::all_of(asked.begin(), asked.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  const std::lock_guard lock(component_mutex);
  // Once a file was opened Open MPI has survived the choice, and has forgotten the others.
  if (!component_seen.empty() || !one_name || asked == "default") return Status::ok();
  if (!component_known("ompio") || component_known(asked)) return Status::ok();
  return {
      Code::kInvalidArgument,
      fmt::format("failed to choose MPI-IO's component (OMPI_MCA_io={} is not in this Open MPI): "
                  "unset it, or name one of `ompi_info | grep 'MCA io'`",
                  asked)};
}

Result<std::shared_ptr<MpiFile>> MpiFile::open(std::shared_ptr<const MpiSession> session,
                                               const std::string& path, Access access) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return failure(file_error("open", path, errno));
  }
  std::shared_ptr<MpiFile> file(new MpiFile(std::move(session), path));
  const std::lock_guard lock(mpi_files_mutex());
  const MpiSession::Call call(*file->session_);
  const std::vector<int> fds_before = descriptors_of(info);
  const MpiHints hints;
  const int mode = access == Access::kRead ? MPI_MODE_RDONLY : MPI_MODE_RDWR;
  const int rc = MPI_File_open(MPI_COMM_SELF, path.c_str(), mode, hints.info(), &file->file_);
  if (rc != MPI_SUCCESS) {
    file->file_ = MPI_FILE_NULL;
    return failure(mpi_status(rc, fmt::format("open {}", path)));
  }
  MPI_File_set_errhandler(file->file_, MPI_ERRORS_RETURN);
  note_component();
  file->network_ = on_network_file_system(path);
  if (Status found = file->find_descriptor(access, fds_before); !found.is_ok())
    return failure(found);
  return file;
}

Status MpiFile::find_descriptor(Access access, const std::vector<int>& fds_before) {
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0) {
    for (const int fd : descriptors_of(info)) {
      if (std::find(fds_before.begin(), fds_before.end(), fd) == fds_before.end()) fd_ = fd;
    }
  }
  call_bytes_max_ = kCallBytesMax;
  if (fd_ < 0) {
    // Cache blocks belong to the file: any descriptor can drop them, but not stop the read-ahead
    // of another.
    fd_ = ::open(path_.c_str(), (access == Access::kRead ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    if (fd_ < 0) return file_error("open", path_, errno);
    own_fd_ = true;
    call_bytes_max_ = kCallBytesUngoverned;
    if (descriptors_found.exchange(false)) {
      logger("pfs").warn(
          "the descriptor of MPI's file {} was not found: read-ahead stays on, and "
          "a call reads at most {} B",
          path_, kCallBytesUngoverned);
    }
  }
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
  return Status::ok();
}

MpiFile::~MpiFile() {
  const std::lock_guard lock(mpi_files_mutex());
  int finalized = 0;
  MPI_Finalized(&finalized);
  // After MPI_Finalize the file is lost to us, and the descriptor ends with the process.
  if (file_ != MPI_FILE_NULL && finalized == 0) {
    const MpiSession::Call call(*session_);
    MPI_File_close(&file_);
  }
  if (own_fd_) ::close(fd_);
}

Status MpiFile::read(std::uint64_t offset_bytes, Span into) const {
  for (std::uint64_t done = 0; done < into.size_bytes;) {
    const std::uint64_t want = std::min(into.size_bytes - done, call_bytes_max_);
    MPI_Status status;
    int count = 0;
    int rc = MPI_SUCCESS;
    {
      const MpiSession::Call call(*session_);
      rc = MPI_File_read_at(file_, static_cast<MPI_Offset>(offset_bytes + done), into.data + done,
                            static_cast<int>(want), MPI_BYTE, &status);
      if (rc == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &count);
    }
    const std::string what =
        fmt::format("read {} B at {}:{}", into.size_bytes, path_, offset_bytes);
    if (rc != MPI_SUCCESS) return mpi_status(rc, what);
    // Behind the end of the file MPI reports success and a smaller count.
    if (count < 0 || static_cast<std::uint64_t>(count) != want) {
      return {Code::kIoError,
              fmt::format("failed to {} (short read {} B)", what, done + std::max(count, 0))};
    }
    done += want;
  }
  return Status::ok();
}

void MpiFile::forget(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
  const std::uint64_t begin = offset_bytes / kCacheBlock * kCacheBlock;
  const std::uint64_t end = round_up(offset_bytes + size_bytes);
  ::posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                  POSIX_FADV_DONTNEED);
}

Status MpiFile::write(std::uint64_t offset_bytes, ConstSpan from) const {
  const std::string what = fmt::format("write {} B at {}:{}", from.size_bytes, path_, offset_bytes);
  for (std::uint64_t done = 0; done < from.size_bytes;) {
    const std::uint64_t want = std::min(from.size_bytes - done, kCallBytesMax);
    MPI_Status status;
    int count = 0;
    int rc = MPI_SUCCESS;
    {
      const MpiSession::Call call(*session_);
      rc = MPI_File_write_at(file_, static_cast<MPI_Offset>(offset_bytes + done), from.data + done,
                             static_cast<int>(want), MPI_BYTE, &status);
      if (rc == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &count);
    }
    if (rc != MPI_SUCCESS) return mpi_status(rc, what);
    if (count < 0 || static_cast<std::uint64_t>(count) != want) {
      return {Code::kIoError,
              fmt::format("failed to {} (short write {} B)", what, done + std::max(count, 0))};
    }
    done += want;
  }
  return settle(offset_bytes, from.size_bytes);
}

Status MpiFile::settle(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
  const auto begin = static_cast<off_t>(offset_bytes);
  const auto length = static_cast<off_t>(size_bytes);
  constexpr unsigned kWriteAndWait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  int rc = network_ ? ::fdatasync(fd_) : ::sync_file_range(fd_, begin, length, kWriteAndWait);
  const bool unsupported = rc != 0 && (errno == ENOSYS || errno == EINVAL || errno == ESPIPE);
  if (unsupported && !network_) rc = ::fdatasync(fd_);
  if (rc != 0) {
    return file_error(fmt::format("write back {} B at {} of", size_bytes, offset_bytes), path_,
                      errno);
  }
  forget(offset_bytes, size_bytes);
  return Status::ok();
}

Result<std::shared_ptr<SegmentHandle>> MpiFileOpener::open(const std::string& path, Access access) {
  auto file = MpiFile::open(session_, path, access);
  if (!file) return failure(file.error());
  return std::shared_ptr<SegmentHandle>(std::move(*file));
}

}  // namespace kvstream
