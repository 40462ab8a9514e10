// Segment files opened with plain descriptors, and positioned I/O on them.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include "tiers/slot_store.hpp"
#include "tiers/slot_store_files.hpp"

namespace kvstream {

/// How bytes reach the device.
enum class Caching : std::uint8_t {
  kDirect,    ///< O_DIRECT
  kGoverned,  ///< through the page cache, which is emptied of them at once
};

class PosixHandle final : public SegmentHandle {
 public:
  explicit PosixHandle(UniqueFd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

/// Stateless: any thread.
class PosixOpener final : public FileOpener {
 public:
  explicit PosixOpener(Caching caching) : caching_(caching) {}
  Result<std::shared_ptr<SegmentHandle>> open(const std::string& path, Access access) override;

 private:
  Caching caching_;
};

inline constexpr std::uint32_t kDirectAlignment = 4096;

/// kDirect when a file below `root` takes a direct write and read of 4 KiB, else kGoverned.
Caching probe_caching(const std::string& root);
inline std::uint32_t alignment_of(Caching caching) {
  return caching == Caching::kDirect ? kDirectAlignment : 1;
}
inline std::uint32_t round_up(std::uint32_t size_bytes, std::uint32_t alignment_bytes) {
  return (size_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
}

/// Fills `into` with the spans of a read; kInvalidArgument when they do not add up to the size
/// rounded up to the alignment, or are not aligned.
Status spans_to_iovecs(const ReadOp& op, std::uint32_t alignment_bytes, std::vector<iovec>& into);

}  // namespace kvstream
