#include "core/checksum.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace kvstream {
namespace {

constexpr unsigned kSeed = 46;

std::vector<std::byte> random_bytes(std::size_t size_bytes, std::mt19937_64& random) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Cuts memory into runs of random length, some of them empty.
std::vector<Span> cut(std::byte* data, std::size_t size_bytes, std::mt19937_64& random) {
  std::vector<Span> spans;
  while (size_bytes > 0) {
    const std::size_t most = std::min<std::size_t>(size_bytes, 20'000);
    const std::size_t piece = random() % 8 == 0 ? 0 : 1 + random() % most;
    spans.push_back({data, piece});
    data += piece;
    size_bytes -= piece;
  }
  return spans;
}

// The published vector of XXH3-64 for empty input, and the value of a well-known text.
TEST(Checksum, IsXxh3With64Bits) {
  EXPECT_EQ(checksum({}), 0x2d06800538d394c2ULL);
  EXPECT_NE(checksum(std::as_bytes(std::span(std::string_view("a")))), checksum({}));
}

TEST(Checksum, ChangesWithEverySingleBit) {
  std::mt19937_64 random(kSeed);
  std::vector<std::byte> bytes = random_bytes(4096, random);
  const std::uint64_t right = checksum(bytes);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t at = random() % bytes.size();
    const std::byte flipped = std::byte{1} << (random() % 8);
    bytes[at] ^= flipped;
    EXPECT_NE(checksum(bytes), right) << "byte " << at;
    bytes[at] ^= flipped;
  }
}

class ChecksumOfSize : public testing::TestWithParam<std::size_t> {};

TEST_P(ChecksumOfSize, IsTheSameCopiedGatheredScatteredAndInOnePiece) {
  std::mt19937_64 random(kSeed + GetParam());
  std::vector<std::byte> from = random_bytes(GetParam(), random);
  const std::uint64_t expected = checksum(from);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::byte> into(from.size());
    const std::vector<Span> parts = cut(into.data(), into.size(), random);
    EXPECT_EQ(copy_and_checksum({from.data(), from.size()}, parts), expected);
    EXPECT_EQ(into, from);
    EXPECT_EQ(checksum_spans(parts, into.size()), expected);

    std::vector<ConstSpan> sources;
    for (const Span& part : cut(from.data(), from.size(), random)) {
      sources.push_back({part.data, part.size_bytes});
    }
    std::vector<std::byte> gathered(from.size());
    EXPECT_EQ(gather_and_checksum(sources, gathered.data()), expected);
    EXPECT_EQ(gathered, from);
  }
}
// Around XXH3's own borders (16, 128, 240, 1024), around pieces, and whole blocks.
INSTANTIATE_TEST_SUITE_P(Sizes, ChecksumOfSize,
                         testing::Values(0, 1, 15, 17, 127, 129, 239, 241, 1023, 1025, 8191, 8192,
                                         8193, 16'384, 100'003, 1'048'576));

TEST(Checksum, LeavesMemoryBehindTheBlockAlone) {
  std::mt19937_64 random(kSeed);
  const std::vector<std::byte> from = random_bytes(10'000, random);
  std::vector<std::byte> into(12'000, std::byte{0x5a});
  const std::vector<Span> parts = {{into.data(), 6'000}, {into.data() + 6'000, 6'000}};
  EXPECT_EQ(copy_and_checksum({from.data(), from.size()}, parts), checksum(from));
  for (std::size_t at = from.size(); at < into.size(); ++at) EXPECT_EQ(into[at], std::byte{0x5a});
  EXPECT_EQ(checksum_spans(parts, from.size()), checksum(from));
}

}  // namespace
}  // namespace kvstream
