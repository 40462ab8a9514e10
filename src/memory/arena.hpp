// Shared memory that the host tier stands on, and that clients may map read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kvstream/block.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// One memfd, allocated, mapped read-write here and then sealed against shrinking, growing and
/// writing by anyone else. Owned by a tier; region() is constant, any thread. Bounded by its size,
/// which check_memory() has passed. Touched at open, so no page fault is left for later.
class Arena {
 public:
  struct Options {
    std::uint64_t bytes = 0;  ///< rounded up to 2 MiB
    int numa_node = -1;       ///< -1 = do not bind
    std::string name = "kvstream-arena";
  };
  static Result<std::unique_ptr<Arena>> open(const Options& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Span region() const noexcept { return {base_, bytes_}; }
  /// To be passed over a socket; others can map it read-only.
  int fd() const noexcept { return fd_; }
  /// What was got, e.g. "memfd, 2 MiB pages, node 0": for TierReport::mode.
  const std::string& mode() const noexcept { return mode_; }
  /// From now on the destructor leaves the memory mapped (a device may still write into it).
  void abandon() noexcept { abandoned_ = true; }

 private:
  Arena() = default;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  int fd_ = -1;
  std::string mode_;
  bool abandoned_ = false;
};

}  // namespace kvstream
