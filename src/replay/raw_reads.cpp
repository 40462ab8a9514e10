// Calibration targets: positioned reads past the page cache.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "replay/calibration.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kAlignment = 4096;
constexpr std::size_t kWriteBytes = 4U << 20U;

std::string last_error() { return std::strerror(errno); }

/// One open file; O_DIRECT where it can be.
struct RawFile {
  RawFile() = default;
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
  bool direct = false;
};

/// The extents of a device and their files; shared by the threads that read them.
class RawExtents {
 public:
  static Result<std::shared_ptr<const RawExtents>> open(std::vector<Extent> extents) {
    auto made = std::make_shared<RawExtents>();
    for (const Extent& extent : extents) {
      if (Status status = made->open_file(extent.path); !status.is_ok()) {
        return failure(std::move(status));
      }
    }
    made->extents_ = std::move(extents);
    return std::shared_ptr<const RawExtents>(std::move(made));
  }

  bool all_direct() const {
    return std::all_of(files_.begin(), files_.end(),
                       [](const auto& entry) { return entry.second->direct; });
  }

  Result<std::uint64_t> read(std::size_t index, std::byte* into) const {
    const Extent& extent = extents_[index];
    const RawFile& file = *files_.at(extent.path);
    const std::uint64_t begin = extent.offset_bytes / kAlignment * kAlignment;
    const std::uint64_t wanted_end = extent.offset_bytes + extent.size_bytes;
    const std::uint64_t end = (wanted_end + kAlignment - 1) / kAlignment * kAlignment;
    if (!file.direct) {
      ::posix_fadvise(file.fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                      POSIX_FADV_DONTNEED);
    }
    std::uint64_t at = begin;
    while (at < wanted_end) {
      const ssize_t got = ::pread(file.fd, into + (at - begin), end - at, static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return failure(Code::kIoError,
                       fmt::format("failed to read {} B at {}:{} ({}); device not calibrated",
                                   extent.size_bytes, extent.path, extent.offset_bytes,
                                   got < 0 ? last_error() : "the file ends before"));
      }
      at += static_cast<std::uint64_t>(got);
    }
    return at - begin;
  }

 private:
  Status open_file(const std::string& path) {
    std::unique_ptr<RawFile>& file = files_[path];
    if (file) return Status::ok();
    file = std::make_unique<RawFile>();
    file->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    file->direct = file->fd >= 0;
    if (file->fd < 0 && errno == EINVAL) file->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file->fd < 0) {
      return {Code::kIoError,
              fmt::format("failed to open {} to calibrate its device ({})", path, last_error())};
    }
    // Read-ahead would move more than was asked.
    if (!file->direct) ::posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    return Status::ok();
  }

  std::vector<Extent> extents_;
  std::map<std::string, std::unique_ptr<RawFile>> files_;
};

/// A counter stream, mixed (splitmix64): a drive that compresses or merges gains nothing.
void fill(std::vector<std::uint64_t>& words, std::uint64_t& counter) {
  for (std::uint64_t& word : words) {
    std::uint64_t x = counter += 0x9e37'79b9'7f4a'7c15;
    x = (x ^ (x >> 30U)) * 0xbf58'476d'1ce4'e5b9;
    x = (x ^ (x >> 27U)) * 0x94d0'49bb'1331'11eb;
    word = x ^ (x >> 31U);
  }
}

Status write_scratch(int fd, std::uint64_t size_bytes) {
  std::vector<std::uint64_t> words(kWriteBytes / sizeof(std::uint64_t));
  std::uint64_t counter = 1;
  for (std::uint64_t at = 0; at < size_bytes;) {
    fill(words, counter);
    const std::uint64_t length = std::min<std::uint64_t>(kWriteBytes, size_bytes - at);
    const ssize_t wrote = ::pwrite(fd, words.data(), length, static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return {errno == ENOSPC ? Code::kNoSpace : Code::kIoError,
              fmt::format("failed to write {} B at {} ({})", length, at, last_error())};
    }
    at += static_cast<std::uint64_t>(wrote);
  }
  if (::fsync(fd) != 0) return {Code::kIoError, fmt::format("failed to sync ({})", last_error())};
  return Status::ok();
}

}  // namespace

Result<CalibrationTarget> raw_target(std::string device_id, std::vector<Extent> extents) {
  if (extents.empty()) {
    return failure(Code::kInvalidArgument,
                   fmt::format("no extents on device {} to calibrate it with", device_id));
  }
  CalibrationTarget target;
  target.device_id = std::move(device_id);
  target.count_path = extents.front().path;
  for (const Extent& extent : extents) target.sizes_bytes.push_back(extent.size_bytes);
  auto raw = RawExtents::open(std::move(extents));
  if (!raw) return failure(raw.error());
  target.mode = (*raw)->all_direct() ? "O_DIRECT" : "buffered, cache dropped";
  target.read = [raw = *raw](std::size_t index, std::byte* into) { return raw->read(index, into); };
  return target;
}

Result<CalibrationTarget> scratch_target(std::string device_id, const std::string& path,
                                         std::uint64_t size_bytes, std::uint32_t extent_bytes) {
  if (extent_bytes == 0 || size_bytes < extent_bytes) {
    return failure(Code::kInvalidArgument, fmt::format("scratch file of {} B in extents of {} B",
                                                       size_bytes, extent_bytes));
  }
  const std::uint64_t whole = size_bytes / extent_bytes * extent_bytes;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return failure(Code::kIoError, fmt::format("failed to create {} ({})", path, last_error()));
  }
  const Status status = write_scratch(fd, whole);
  ::close(fd);
  if (!status.is_ok()) {
    ::unlink(path.c_str());
    return failure(status.code(), fmt::format("{}: {}", path, status.message()));
  }
  std::vector<Extent> extents;
  for (std::uint64_t at = 0; at < whole; at += extent_bytes) {
    extents.push_back({path, at, extent_bytes});
  }
  auto target = raw_target(std::move(device_id), std::move(extents));
  if (!target) ::unlink(path.c_str());
  return target;
}

}  // namespace kvstream
