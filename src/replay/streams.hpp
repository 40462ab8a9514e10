// Names of made-up texts. Below 2^53, so that a trace in JSON survives readers that know doubles.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <string_view>

#include "replay/random.hpp"

namespace kvstream {

/// A text's name out of words: equal words, equal text.
inline std::uint64_t stream_of(std::string_view words) {
  return XXH3_64bits(words.data(), words.size()) >> 11U;
}
/// The `index`-th text of its own under a salt; other pairs give other texts (53-bit hashes).
inline std::uint64_t fresh_stream(std::uint64_t salt, std::uint64_t index) {
  return mix64(mix64(salt) ^ index) >> 11U;
}

}  // namespace kvstream
