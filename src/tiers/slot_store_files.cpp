#include "tiers/slot_store_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "tiers/slot_store.hpp"

namespace kvstream {
namespace {

constexpr int kRetriesMax = 8;
constexpr std::size_t kSharersMax = 128;
constexpr Nanos kBusyWindow = 250 * kMillisecond;

/// One place of the board, as it lies in the file.
struct Sharer {
  std::int64_t pid = 0;
  std::int64_t busy_at = 0;
};

Code code_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return Code::kNoSpace;
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
    case EOPNOTSUPP:
    case ENOSYS:
    case ENOLCK:
      return Code::kUnavailable;
    default:
      return Code::kIoError;
  }
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Status file_error(const std::string& what, const std::string& path, int error) {
  return {code_of(error),
          fmt::format("failed to {} {} ({})", what, path, std::generic_category().message(error))};
}

Status pwrite_all(int fd, const void* data, std::size_t size_bytes, std::uint64_t offset_bytes,
                  const std::string& path) {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t done = 0;
  for (int retries = 0; done < size_bytes;) {
    const ssize_t n =
        ::pwrite(fd, from + done, size_bytes - done, static_cast<off_t>(offset_bytes + done));
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EINTR || errno == EAGAIN) && retries++ < kRetriesMax) {
      continue;
    } else {
      return file_error("write to", path, n == 0 ? EIO : errno);
    }
  }
  return Status::ok();
}

Result<std::size_t> pread_some(int fd, void* data, std::size_t size_bytes,
                               std::uint64_t offset_bytes, const std::string& path) {
  auto* into = static_cast<std::byte*>(data);
  std::size_t done = 0;
  for (int retries = 0; done < size_bytes;) {
    const ssize_t n =
        ::pread(fd, into + done, size_bytes - done, static_cast<off_t>(offset_bytes + done));
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0) {
      break;
    } else if ((errno == EINTR || errno == EAGAIN) && retries++ < kRetriesMax) {
      continue;
    } else {
      return failure(file_error("read", path, errno));
    }
  }
  return done;
}

Result<std::vector<DirectoryEntry>> list_directory(const std::string& path) {
  std::vector<DirectoryEntry> entries;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) {
    if (errno == ENOENT) return entries;
    return failure(file_error("list", path, errno));
  }
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat info {};
      is_directory = ::stat((path + "/" + name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    }
    entries.push_back({name, is_directory});
  }
  ::closedir(directory);
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

Result<FileLock> FileLock::try_take(const std::string& path) {
  FileLock lock;
  lock.fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock.fd_.is_open()) return failure(file_error("open", path, errno));
  for (int retries = 0; ::flock(lock.fd_.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR && retries++ < kRetriesMax) continue;
    if (errno == EWOULDBLOCK) return failure(Code::kOverloaded, path + " is locked by another");
    return failure(Code::kUnavailable, file_error("lock", path, errno).message());
  }
  return lock;
}

Result<FileLock> FileLock::take(const std::string& path, Nanos wait_ns) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait_ns);
  for (;;) {
    auto lock = try_take(path);
    if (lock || lock.error().code() != Code::kOverloaded) return lock;
    if (std::chrono::steady_clock::now() >= deadline) {
      return failure(Code::kTimedOut,
                     fmt::format("{} stayed locked for {} ms", path, wait_ns / kMillisecond));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

SharersBoard SharersBoard::open(const std::string& path, Nanos now) {
  SharersBoard board;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.is_open()) return board;
  for (std::size_t place = 0; place < kSharersMax; ++place) {
    Sharer sharer;
    const auto offset = place * sizeof sharer;
    const auto got = pread_some(fd.get(), &sharer, sizeof sharer, offset, path);
    if (!got) return board;
    const bool taken = *got == sizeof sharer && sharer.pid != 0 &&
                       (::kill(static_cast<pid_t>(sharer.pid), 0) == 0 || errno == EPERM);
    if (taken) continue;
    sharer = {::getpid(), now - kBusyWindow};
    if (!pwrite_all(fd.get(), &sharer, sizeof sharer, offset, path).is_ok()) return board;
    board.fd_ = std::move(fd);
    board.place_ = static_cast<int>(place);
    return board;
  }
  return board;
}

SharersBoard::~SharersBoard() {
  if (!fd_.is_open()) return;
  const Sharer nobody;
  (void)pwrite_all(fd_.get(), &nobody, sizeof nobody, place_ * sizeof nobody, "sharers");
}

void SharersBoard::mark(Nanos now) const {
  if (!fd_.is_open()) return;
  const Sharer sharer{::getpid(), now};
  (void)pwrite_all(fd_.get(), &sharer, sizeof sharer, place_ * sizeof sharer, "sharers");
}

std::uint32_t SharersBoard::count(Nanos now) const {
  if (!fd_.is_open()) return 1;
  std::array<Sharer, kSharersMax> all{};
  const auto got = pread_some(fd_.get(), all.data(), sizeof all, 0, "sharers");
  if (!got) return 1;
  std::uint32_t busy = 1;
  for (std::size_t i = 0; i < *got / sizeof(Sharer); ++i) {
    if (static_cast<int>(i) != place_ && all[i].pid != 0 && now - all[i].busy_at < kBusyWindow) {
      ++busy;
    }
  }
  return busy;
}

Result<std::string> device_id_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return failure(file_error("look at", path, errno));
  return fmt::format("dev:{}:{}", major(info.st_dev), minor(info.st_dev));
}

bool on_network_file_system(const std::string& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return false;
  switch (static_cast<std::uint32_t>(info.f_type)) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case 0xFE534D42:  // SMB2
    case 0xFF534D42:  // CIFS
    case 0x0BD00BD0:  // Lustre
    case 0x47504653:  // GPFS
    case 0x19830326:  // BeeGFS
    case CEPH_SUPER_MAGIC:
    case V9FS_MAGIC:
    case AFS_SUPER_MAGIC:
    case FUSE_SUPER_MAGIC:  // GlusterFS and others
      return true;
    default:
      return false;
  }
}

Status make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return {code_of(error.value()), fmt::format("failed to make the directory {} ({}); give a path "
                                                "that this user may write",
                                                path, error.message())};
  }
  return Status::ok();
}

}  // namespace kvstream
