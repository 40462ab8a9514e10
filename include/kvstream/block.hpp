// Blocks and their keys.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace kvstream {

/// 128-bit name of a block: the first half of SHA-256 over (parent key, token ids, extra keys);
/// the namespace is the first link of the chain (src/core/keys.hpp).
struct BlockKey {
  std::array<std::uint8_t, 16> bytes{};

  auto operator<=>(const BlockKey&) const = default;
  /// The first 8 bytes, little endian: well mixed, for hashing and for reports.
  std::uint64_t low64() const noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string to_hex() const;
};

template <class H>
H AbslHashValue(H state, const BlockKey& key) {
  return H::combine(std::move(state), key.low64());
}

/// A run of writable bytes that somebody else owns.
struct Span {
  std::byte* data = nullptr;
  std::size_t size_bytes = 0;
};

/// A run of readable bytes that somebody else owns.
struct ConstSpan {
  const std::byte* data = nullptr;
  std::size_t size_bytes = 0;
};

/// The most destinations one block may be scattered over (one a layer of a large model).
inline constexpr std::size_t kSpansMax = 256;

}  // namespace kvstream
