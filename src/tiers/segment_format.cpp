#include "tiers/segment_format.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tiers/slot_store_files.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kSuperblockBytes = 4096;

/// For people and for fsck; readers go by the index log.
struct Superblock {
  std::array<char, 8> magic{'K', 'V', 'S', 'S', 'E', 'G', '1', '\0'};
  std::uint32_t version = 1;
  std::uint32_t number = 0;
  std::uint64_t namespace_fingerprint = 0;
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::uint64_t data_offset_bytes = kSuperblockBytes;
  std::array<char, 256> writer{};
};

}  // namespace

const char* segment_extension(FormatId id) noexcept {
  return id == FormatId::kHdf5 ? ".h5" : ".seg";
}

Result<bool> preallocate(int fd, std::uint64_t size_bytes, const std::string& path) {
  for (int retries = 0; ::fallocate(fd, 0, 0, static_cast<off_t>(size_bytes)) != 0;) {
    if (errno == EINTR && retries++ < 8) continue;
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      return failure(file_error("allocate " + std::to_string(size_bytes) + " B for", path, errno));
    }
    struct stat info {};
    if (::fstat(fd, &info) == 0 && static_cast<std::uint64_t>(info.st_size) >= size_bytes) {
      return false;
    }
    if (::ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
      return failure(file_error("extend", path, errno));
    }
    return false;
  }
  return true;
}

std::uint64_t PlainFormat::file_bytes_max(std::uint32_t slots, std::uint32_t slot_bytes) const {
  return kSuperblockBytes + std::uint64_t{slots} * slot_bytes;
}

Result<SegmentMade> PlainFormat::create(const SegmentSpec& spec) const {
  const UniqueFd fd(::open(spec.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.is_open()) return failure(file_error("make", spec.path, errno));
  SegmentMade made;
  made.data_offset_bytes = kSuperblockBytes;
  made.file_bytes = file_bytes_max(spec.slots, spec.slot_bytes);
  const auto allocated = preallocate(fd.get(), made.file_bytes, spec.path);
  if (!allocated) {
    ::unlink(spec.path.c_str());
    return failure(allocated.error());
  }
  made.preallocated = *allocated;
  Superblock head;
  head.number = spec.number;
  head.namespace_fingerprint = spec.namespace_fingerprint;
  head.slots = spec.slots;
  head.slot_bytes = spec.slot_bytes;
  std::strncpy(head.writer.data(), spec.writer.c_str(), head.writer.size() - 1);
  if (auto status = pwrite_all(fd.get(), &head, sizeof head, 0, spec.path); !status.is_ok()) {
    ::unlink(spec.path.c_str());
    return failure(status);
  }
  return made;
}

}  // namespace kvstream
