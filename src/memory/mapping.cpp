#include "memory/mapping.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvstream {
namespace {

// The kernel's call is used as it is: libnuma would be one more package for one call.
constexpr int kPolicyPreferred = 1;  // MPOL_PREFERRED
constexpr std::size_t kNodesMax = 1024;
constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);

// "ShmemPmdMapped:   2048 kB" -> 2048 KiB, when `line` begins with `field`.
std::uint64_t field_bytes(const std::string& line, std::string_view field) {
  if (!line.starts_with(field)) return 0;
  return std::strtoull(line.c_str() + field.size(), nullptr, 10) * 1024;
}

}  // namespace

Result<std::byte*> reserve_addresses(std::size_t bytes) {
  void* space =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space != MAP_FAILED) return static_cast<std::byte*>(space);
  return failure(Code::kNoSpace, fmt::format("failed to reserve {} B of address space ({})", bytes,
                                             std::strerror(errno)));
}

Result<std::byte*> map_aligned(std::size_t bytes, int fd) {
  const std::size_t reserved = bytes + kHugePageBytes;
  void* space =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) {
    return failure(Code::kNoSpace, fmt::format("failed to reserve {} B of address space ({})",
                                               reserved, std::strerror(errno)));
  }
  const auto start = reinterpret_cast<std::uintptr_t>(space);
  const std::uintptr_t aligned = round_up(start, kHugePageBytes);
  const int kind = fd >= 0 ? MAP_SHARED : (MAP_PRIVATE | MAP_ANONYMOUS);
  void* base = ::mmap(reinterpret_cast<void*>(aligned), bytes, PROT_READ | PROT_WRITE,
                      kind | MAP_FIXED, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    ::munmap(space, reserved);
    return failure(Code::kNoSpace,
                   fmt::format("failed to map {} B ({})", bytes, std::strerror(error)));
  }
  if (aligned > start) ::munmap(space, aligned - start);
  const std::uintptr_t end = aligned + bytes;
  if (start + reserved > end) ::munmap(reinterpret_cast<void*>(end), start + reserved - end);
  // Advice only: without huge pages the region works, and page_mode() says so.
  (void)::madvise(base, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(base);
}

void unmap(std::byte* base, std::size_t bytes) noexcept {
  if (base != nullptr) ::munmap(base, bytes);
}

Status prefer_numa_node(Span memory, int numa_node) {
  if (numa_node < 0 || static_cast<std::size_t>(numa_node) >= kNodesMax) {
    return {Code::kInvalidArgument, fmt::format("NUMA node {} is out of range", numa_node)};
  }
  std::array<unsigned long, kNodesMax / kBitsPerWord> mask{};
  const auto node = static_cast<std::size_t>(numa_node);
  mask[node / kBitsPerWord] = 1UL << (node % kBitsPerWord);
  // The kernel takes one off the count of bits.
  if (::syscall(SYS_mbind, memory.data, memory.size_bytes, kPolicyPreferred, mask.data(),
                kNodesMax + 1, 0) != 0) {
    return {Code::kUnavailable, fmt::format("failed to bind {} B to NUMA node {} ({})",
                                            memory.size_bytes, numa_node, std::strerror(errno))};
  }
  return Status::ok();
}

Status populate(Span memory) {
  if (::madvise(memory.data, memory.size_bytes, MADV_POPULATE_WRITE) == 0) return Status::ok();
  if (errno != EINVAL) {
    return {Code::kNoSpace, fmt::format("failed to touch {} B of memory ({}); ask for less",
                                        memory.size_bytes, std::strerror(errno))};
  }
  // Before Linux 5.14: by hand. A volatile store, or the loop is no loop.
  for (std::size_t at = 0; at < memory.size_bytes; at += kSmallPageBytes) {
    *reinterpret_cast<volatile char*>(memory.data + at) = 0;
  }
  return Status::ok();
}

std::uint64_t huge_page_bytes(Span memory) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string head = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(memory.data));
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    if (!inside) {
      inside = line.starts_with(head);
      continue;
    }
    if (line.starts_with("VmFlags:")) break;
    for (const std::string_view field : {"AnonHugePages:", "ShmemPmdMapped:"}) {
      if (const std::uint64_t bytes = field_bytes(line, field)) return bytes;
    }
  }
  return 0;
}

std::string page_mode(Span memory) {
  const std::uint64_t huge = huge_page_bytes(memory);
  if (huge == 0) return "4 KiB pages";
  if (huge >= memory.size_bytes) return "2 MiB pages";
  return fmt::format("{} % 2 MiB pages", huge * 100 / memory.size_bytes);
}

}  // namespace kvstream
