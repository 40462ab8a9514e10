#include "tiers/slot_store_posix.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace kvstream {

Result<std::shared_ptr<SegmentHandle>> PosixOpener::open(const std::string& path, Access access) {
  const int flags = (access == Access::kRead ? O_RDONLY : O_RDWR) | O_CLOEXEC |
                    (caching_ == Caching::kDirect ? O_DIRECT : 0);
  UniqueFd fd(::open(path.c_str(), flags));
  if (!fd.is_open()) return failure(file_error("open", path, errno));
  // Read-ahead moves up to 1.8x the bytes asked for.
  if (caching_ == Caching::kGoverned) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  return std::make_shared<PosixHandle>(std::move(fd));
}

Caching probe_caching(const std::string& root) {
  const std::string path = fmt::format("{}/PROBE.{}", root, ::getpid());
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600));
  if (!fd.is_open()) {
    ::unlink(path.c_str());
    return errno == EINVAL ? Caching::kGoverned : Caching::kDirect;
  }
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(kDirectAlignment, kDirectAlignment), &std::free);
  const bool refused =
      (::pwrite(fd.get(), memory.get(), kDirectAlignment, 0) < 0 && errno == EINVAL) ||
      (::pread(fd.get(), memory.get(), kDirectAlignment, 0) < 0 && errno == EINVAL);
  ::unlink(path.c_str());
  return refused ? Caching::kGoverned : Caching::kDirect;
}

Status spans_to_iovecs(const ReadOp& op, std::uint32_t alignment_bytes, std::vector<iovec>& into) {
  into.clear();
  const std::uint64_t wanted = round_up(op.size_bytes, alignment_bytes);
  std::uint64_t sum = 0;
  for (const Span& span : op.into) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(span.data) % alignment_bytes == 0 &&
                         span.size_bytes % alignment_bytes == 0;
    if (!aligned || span.data == nullptr || span.size_bytes == 0) {
      return {Code::kInvalidArgument,
              fmt::format("a span of {} B is not aligned to {} B; block not read", span.size_bytes,
                          alignment_bytes)};
    }
    into.push_back({span.data, span.size_bytes});
    sum += span.size_bytes;
  }
  if (op.size_bytes == 0 || sum != wanted || into.size() > kSpansMax) {
    return {Code::kInvalidArgument,
            fmt::format("{} spans of {} B in all for a block of {} B; block not read", into.size(),
                        sum, op.size_bytes)};
  }
  return Status::ok();
}

}  // namespace kvstream
