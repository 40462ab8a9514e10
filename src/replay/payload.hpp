// The bytes of a replayed block: made from its key, so that every byte that comes back is checked.
#pragma once

#include <cstdint>
#include <span>

#include "kvstream/block.hpp"

namespace kvstream {

/// A counter stream: each run of 4 KiB begins with its key and its offset in the block, and goes on
/// with a counter whose start and stride depend on both. Swapped, shifted, stale and torn bytes all
/// differ somewhere.
inline constexpr std::size_t kPayloadRunBytes = 4096;

/// Writes the block's bytes from its start on.
void fill_payload(const BlockKey& key, std::span<std::byte> block) noexcept;

/// How many bytes differ from what fill_payload writes.
std::uint64_t count_wrong_bytes(const BlockKey& key, std::span<const std::byte> block) noexcept;

}  // namespace kvstream
