// The few things a slot store wants of POSIX files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// Owns one descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }
  void reset(int fd = -1);
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// "failed to WHAT PATH (reason)" with the code that fits errno `error`.
Status file_error(const std::string& what, const std::string& path, int error);

/// The whole of it or an error; EINTR and EAGAIN are tried again a bounded number of times.
Status pwrite_all(int fd, const void* data, std::size_t size_bytes, std::uint64_t offset_bytes,
                  const std::string& path);
/// As many bytes as there are, up to size_bytes.
Result<std::size_t> pread_some(int fd, void* data, std::size_t size_bytes,
                               std::uint64_t offset_bytes, const std::string& path);

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;
};
/// Sorted by name; without "." and "..". No such directory: empty.
Result<std::vector<DirectoryEntry>> list_directory(const std::string& path);

/// A flock. kOverloaded when another holds it, kUnavailable when the file system has no locks.
class FileLock {
 public:
  FileLock() = default;
  static Result<FileLock> try_take(const std::string& path);
  /// Asks again every few milliseconds, at most `wait_ns` of the real clock.
  static Result<FileLock> take(const std::string& path, Nanos wait_ns);
  bool is_held() const { return fd_.is_open(); }

 private:
  UniqueFd fd_;
};

/// Which ranks of a node keep one device busy: a small file under the root with {pid, last busy
/// time} for each. Any thread. A file that cannot be had leaves count() at 1.
class SharersBoard {
 public:
  SharersBoard() = default;
  /// To be called under the root's lock: takes the place of nobody or of a process that is gone.
  static SharersBoard open(const std::string& path, Nanos now);
  SharersBoard(SharersBoard&&) noexcept = default;
  SharersBoard& operator=(SharersBoard&&) noexcept = default;
  ~SharersBoard();

  void mark(Nanos now) const;
  /// Ranks that were busy in the last 250 ms, this one included; at least 1.
  std::uint32_t count(Nanos now) const;

 private:
  UniqueFd fd_;
  int place_ = -1;
};

}  // namespace kvstream
