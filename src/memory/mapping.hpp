// Address space for large regions: aligned to huge pages, bound to a NUMA node, touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kvstream/block.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

inline constexpr std::size_t kSmallPageBytes = 4096;
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

inline std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Maps `bytes` (a multiple of 2 MiB) read-write at an address aligned to 2 MiB: of the file, or
/// private and anonymous when `fd` is -1. Asks for huge pages; nothing is touched yet.
Result<std::byte*> map_aligned(std::size_t bytes, int fd);
/// Addresses that belong to nobody else and fault when touched; given back with unmap().
Result<std::byte*> reserve_addresses(std::size_t bytes);
void unmap(std::byte* base, std::size_t bytes) noexcept;

/// Pages that are touched from now on come from `numa_node` as long as it has some (then from
/// others: to insist on one node would have the kernel kill the process when that node is full).
/// kUnavailable when the kernel or a container refuses; the memory works all the same.
Status prefer_numa_node(Span memory, int numa_node);

/// Touches every page for writing. kNoSpace when the memory is not to be had.
Status populate(Span memory);

/// How many bytes of the mapping that begins at `memory.data` stand on huge pages now.
std::uint64_t huge_page_bytes(Span memory);

/// "2 MiB pages", "4 KiB pages" or "37 % 2 MiB pages".
std::string page_mode(Span memory);

}  // namespace kvstream
