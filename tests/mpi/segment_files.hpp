// What the tests of segment files share: seeing the page cache, and bytes that can be told apart.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvstream {

/// Bytes of one block, different for each seed.
inline std::vector<std::byte> bytes_of(std::uint64_t seed, std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (auto& byte : bytes) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    byte = static_cast<std::byte>(state >> 56U);
  }
  return bytes;
}

/// Bytes of the range that are in the page cache now; -1 when that cannot be seen.
inline std::int64_t cached_bytes(const std::string& path, std::uint64_t offset_bytes,
                                 std::uint64_t size_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  void* map =
      ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset_bytes));
  ::close(fd);
  if (map == MAP_FAILED) return -1;
  std::vector<unsigned char> resident(size_bytes / 4096);
  std::int64_t count = -1;
  if (::mincore(map, size_bytes, resident.data()) == 0) {
    count = 0;
    for (const unsigned char entry : resident) count += (entry & 1U) != 0 ? 4096 : 0;
  }
  ::munmap(map, size_bytes);
  return count;
}

/// Why the page cache of files in `directory` tells nothing here; empty when it does.
inline std::string page_cache_unseen(const std::string& directory) {
  struct statfs info {};
  constexpr long kTmpfsMagic = 0x01021994;
  if (::statfs(directory.c_str(), &info) == 0 && info.f_type == kTmpfsMagic) {
    return "on a memory file system the page cache is the file";
  }
  const std::string probe = directory + "/probe" + std::to_string(::getpid());
  const int fd = ::open(probe.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool seen = fd >= 0 && ::ftruncate(fd, 4096) == 0 && cached_bytes(probe, 0, 4096) >= 0;
  if (fd >= 0) ::close(fd);
  ::unlink(probe.c_str());
  return seen ? "" : "this file system's files cannot be mapped";
}

}  // namespace kvstream
