#include "replay/payload.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/keys.hpp"
#include "replay/random.hpp"

namespace kvstream {
namespace {

BlockKey key_of(std::uint64_t id) { return external_key(namespace_key(Namespace{}), id); }

std::vector<std::byte> made(std::uint64_t id, std::size_t size) {
  std::vector<std::byte> block(size);
  fill_payload(key_of(id), block);
  return block;
}

TEST(Payload, WhatWasFilledIsRightAtEverySize) {
  for (const std::size_t size : {0U, 1U, 7U, 8U, 4095U, 4096U, 4097U, 38'912U, 262'144U}) {
    EXPECT_EQ(count_wrong_bytes(key_of(1), made(1, size)), 0U) << size;
  }
}

TEST(Payload, EveryFlippedByteIsCounted) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    auto block = made(1, 3 * 4096 + 100);
    const auto at = random.between(0, block.size() - 1);
    block[at] ^= std::byte{static_cast<std::uint8_t>(1U << random.between(0, 7))};
    EXPECT_EQ(count_wrong_bytes(key_of(1), block), 1U) << "byte " << at;
  }
}

TEST(Payload, AnotherKeysBytesAreWrongInEveryRun) {
  const auto block = made(2, 8 * 4096);
  for (std::size_t run = 0; run < 8; ++run) {
    EXPECT_GT(count_wrong_bytes(key_of(1), block), 8 * 1000U);
  }
}

TEST(Payload, RunsThatChangedPlacesAreWrong) {
  auto block = made(1, 4 * 4096);
  std::vector<std::byte> first(block.begin(), block.begin() + 4096);
  std::memcpy(block.data(), block.data() + 4096, 4096);
  std::memcpy(block.data() + 4096, first.data(), 4096);
  EXPECT_GT(count_wrong_bytes(key_of(1), block), 0U);
}

TEST(Payload, EachRunNamesItsKeyAndOffset) {
  const auto block = made(3, 3 * 4096);
  for (std::uint64_t offset = 0; offset < block.size(); offset += 4096) {
    std::uint64_t words[3];
    std::memcpy(words, block.data() + offset, sizeof words);
    EXPECT_EQ(words[0], key_of(3).low64());
    EXPECT_EQ(words[2], offset);
  }
}

}  // namespace
}  // namespace kvstream
