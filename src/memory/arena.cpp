#include "memory/arena.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/logging.hpp"
#include "memory/mapping.hpp"
#include "memory/memory_limit.hpp"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace kvstream {
namespace {

// The seals that were set, for the mode line; kIoError when not even shrinking can be forbidden (a
// client that maps the arena would be killed by an access behind its end).
Result<std::string> seal(int fd) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW;
  if (::fcntl(fd, F_ADD_SEALS, kSize | F_SEAL_FUTURE_WRITE) == 0) return std::string("sealed");
  // Before Linux 5.1.
  if (errno == EINVAL && ::fcntl(fd, F_ADD_SEALS, kSize) == 0) {
    return std::string("sealed against resizing only");
  }
  return failure(Code::kIoError, fmt::format("failed to seal an arena ({})", std::strerror(errno)));
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::open(const Options& options) {
  const std::uint64_t bytes = round_up(options.bytes, kHugePageBytes);
  if (bytes == 0) return failure(Code::kInvalidArgument, "an arena needs a size greater than 0");
  if (Status fits = check_memory(bytes, "a shared-memory arena"); !fits.is_ok()) {
    return failure(std::move(fits));
  }
  std::unique_ptr<Arena> arena(new Arena);
  arena->bytes_ = bytes;
  arena->fd_ = ::memfd_create(options.name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena->fd_ < 0 || ::ftruncate(arena->fd_, static_cast<off_t>(bytes)) != 0) {
    return failure(Code::kIoError,
                   fmt::format("failed to make a memfd of {} B ({})", bytes, std::strerror(errno)));
  }
  Result<std::byte*> base = map_aligned(bytes, arena->fd_);
  if (!base) return failure(base.error());
  arena->base_ = *base;
  std::string node = "no NUMA binding";
  if (options.numa_node >= 0) {
    const Status bound = prefer_numa_node(arena->region(), options.numa_node);
    if (bound.is_ok()) {
      node = fmt::format("node {}", options.numa_node);
    } else {
      logger("memory").warn("{}; memory comes from any node", bound.message());
    }
  }
  // Touched through the mapping first: only that heeds the advice for huge pages; what fallocate
  // allocates is small pages. It stays, as it alone answers ENOSPC where touching would kill.
  if (Status touched = populate(arena->region()); !touched.is_ok()) {
    return failure(std::move(touched));
  }
  if (::fallocate(arena->fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
    return failure(Code::kNoSpace, fmt::format("failed to allocate {} B of shared memory ({})",
                                               bytes, std::strerror(errno)));
  }
  Result<std::string> sealed = seal(arena->fd_);
  if (!sealed) return failure(sealed.error());
  arena->mode_ = fmt::format("memfd, {}, {}, {}", *sealed, page_mode(arena->region()), node);
  return arena;
}

Arena::~Arena() {
  if (fd_ >= 0) ::close(fd_);
  if (!abandoned_) unmap(base_, bytes_);
}

}  // namespace kvstream
