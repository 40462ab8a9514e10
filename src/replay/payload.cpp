#include "replay/payload.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "replay/random.hpp"

namespace kvstream {
namespace {

constexpr std::size_t kWords = kPayloadRunBytes / sizeof(std::uint64_t);
using Run = std::array<std::uint64_t, kWords>;

struct Stream {
  std::uint64_t low, high, offset, start, stride;

  Stream(const BlockKey& key, std::uint64_t at) : low(key.low64()), high(0), offset(at) {
    std::memcpy(&high, key.bytes.data() + sizeof low, sizeof high);
    start = mix64(low ^ mix64(high ^ mix64(offset)));
    stride = start | 1U;
  }
};

// The counter is an addition a word, which compilers turn into vector code.
void make_run(const Stream& stream, std::uint64_t* words) noexcept {
  std::uint64_t value = stream.start;
  for (std::size_t i = 0; i < kWords; ++i) {
    words[i] = value;
    value += stream.stride;
  }
  words[0] = stream.low;
  words[1] = stream.high;
  words[2] = stream.offset;
}

std::uint64_t difference(const Stream& stream, const std::byte* run) noexcept {
  Run words;
  std::memcpy(words.data(), run, 3 * sizeof(std::uint64_t));
  std::uint64_t seen =
      (words[0] ^ stream.low) | (words[1] ^ stream.high) | (words[2] ^ stream.offset);
  std::uint64_t value = stream.start + 3 * stream.stride;
  for (std::size_t i = 3; i < kWords; ++i) {
    std::uint64_t word;
    std::memcpy(&word, run + i * sizeof word, sizeof word);
    seen |= word ^ value;
    value += stream.stride;
  }
  return seen;
}

}  // namespace

void fill_payload(const BlockKey& key, std::span<std::byte> block) noexcept {
  Run words;
  for (std::size_t at = 0; at < block.size(); at += kPayloadRunBytes) {
    const std::size_t part = std::min(kPayloadRunBytes, block.size() - at);
    make_run(Stream(key, at), words.data());
    std::memcpy(block.data() + at, words.data(), part);
  }
}

std::uint64_t count_wrong_bytes(const BlockKey& key, std::span<const std::byte> block) noexcept {
  std::uint64_t wrong = 0;
  Run words;
  for (std::size_t at = 0; at < block.size(); at += kPayloadRunBytes) {
    const std::size_t part = std::min(kPayloadRunBytes, block.size() - at);
    const Stream stream(key, at);
    if (part == kPayloadRunBytes && difference(stream, block.data() + at) == 0) continue;
    make_run(stream, words.data());
    const auto* expected = reinterpret_cast<const std::byte*>(words.data());
    for (std::size_t i = 0; i < part; ++i) wrong += block[at + i] != expected[i];
  }
  return wrong;
}

}  // namespace kvstream
