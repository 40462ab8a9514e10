// An eventfd that one thread sleeps on and others ring.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace kvstream {

/// ring() from any thread; clear() by the thread that polls fd().
class EventFd {
 public:
  EventFd() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~EventFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  int fd() const { return fd_; }
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);
  }
  void clear() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(fd_, &count, sizeof count);
  }

 private:
  int fd_;
};

}  // namespace kvstream
