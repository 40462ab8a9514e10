// XXH3-64 of block data: always on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kvstream/block.hpp"

namespace kvstream {

std::uint64_t checksum(std::span<const std::byte> data) noexcept;

/// Checksum of `from` while it is copied, in one pass over cache-sized pieces, to the spans of
/// `into` in order. Their sizes add up to at least `from.size_bytes`.
std::uint64_t copy_and_checksum(ConstSpan from, std::span<const Span> into) noexcept;
/// The reverse: gathers `from` into one run.
std::uint64_t gather_and_checksum(std::span<const ConstSpan> from, std::byte* into) noexcept;
/// Checksum of a block that lies in several spans.
std::uint64_t checksum_spans(std::span<const Span> spans, std::size_t size_bytes) noexcept;

}  // namespace kvstream
