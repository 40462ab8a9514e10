// An io_uring of one thread, with an eventfd that says when something completed.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "core/event_fd.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// Owned and called by one thread (it may be made by another). At most `entries` operations are
/// prepared or in flight; the owner counts them. What was prepared goes to the kernel in order.
class Uring {
 public:
  struct Reaped {
    std::uint64_t tag = 0;
    std::int32_t result = 0;  ///< bytes, or -errno
  };

  /// kUnavailable where the system refuses io_uring (old kernel, seccomp, sysctl).
  static Result<std::unique_ptr<Uring>> open(std::uint32_t entries);
  /// Nothing may be in flight, else abandon() first.
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  bool prepare_readv(int fd, const iovec* spans, std::uint32_t count, std::uint64_t offset_bytes,
                     std::uint64_t tag);
  bool prepare_write(int fd, const void* from, std::uint32_t size_bytes, std::uint64_t offset_bytes,
                     std::uint64_t tag);
  /// Moves dirty bytes of the range to the device and waits for it.
  bool prepare_sync(int fd, std::uint32_t size_bytes, std::uint64_t offset_bytes,
                    std::uint64_t tag);
  /// Drops clean bytes of the range from the page cache.
  bool prepare_drop(int fd, std::uint32_t size_bytes, std::uint64_t offset_bytes,
                    std::uint64_t tag);

  /// How many of the prepared ones the kernel took; 0 when it is busy (call again later). After an
  /// error the ring takes nothing more, but what is in flight is still to be reaped.
  Result<std::uint32_t> submit();
  std::optional<Reaped> reap();
  /// Waits for a completion, at most that long; reap() then.
  void wait(std::uint32_t wait_ms);
  /// Leaves the ring as it is for good: the kernel may still write into memory named to it.
  void abandon() { abandoned_ = true; }
  const EventFd& event() const { return event_; }

 private:
  Uring() = default;
  io_uring_sqe* next();

  io_uring ring_{};
  EventFd event_;
  bool opened_ = false;
  bool broken_ = false;
  bool abandoned_ = false;
};

}  // namespace kvstream
