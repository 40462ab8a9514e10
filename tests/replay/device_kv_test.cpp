#include "replay/device_kv.hpp"

#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <set>

#include "engine_rig.hpp"
#include "replay/random.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kBlock = 32;  // two pages

DeviceKv pool(std::uint64_t pages, PrefixCache cache = PrefixCache::kOn) {
  return *DeviceKv::open({.capacity_tokens = pages * DeviceKv::kPageTokens,
                          .block_tokens = kBlock,
                          .prefix_cache = cache});
}

std::vector<BlockKey> keys(std::uint64_t family, std::uint32_t count) {
  std::vector<BlockKey> result;
  for (std::uint32_t at = 0; at < count; ++at) result.push_back(family_key(family, at));
  return result;
}

/// A hold of `count` published blocks.
DeviceKv::Hold filled(DeviceKv& kv, std::uint64_t family, std::uint32_t count) {
  DeviceKv::Hold hold;
  EXPECT_TRUE(kv.grow(hold, std::uint64_t{count} * kBlock));
  for (const BlockKey& key : keys(family, count)) kv.publish(hold, key);
  return hold;
}

TEST(DeviceKv, RefusesBlocksThatAreNotWholePages) {
  EXPECT_FALSE(DeviceKv::open({.capacity_tokens = 1024, .block_tokens = 24}));
  EXPECT_FALSE(DeviceKv::open({.capacity_tokens = 15, .block_tokens = 16}));
}

TEST(DeviceKv, GrowsByWholePagesAndChangesNothingWhenItCannot) {
  DeviceKv kv = pool(4);
  DeviceKv::Hold hold;
  EXPECT_TRUE(kv.grow(hold, 17));
  EXPECT_EQ(kv.used_pages(), 2U);
  EXPECT_TRUE(kv.grow(hold, 32));
  EXPECT_EQ(kv.used_pages(), 2U);
  EXPECT_FALSE(kv.grow(hold, 65));
  EXPECT_EQ(kv.used_pages(), 2U);
  kv.release(hold);
  EXPECT_EQ(kv.used_pages(), 0U);
}

TEST(DeviceKv, BlocksStayFindableAfterTheirHolderLeft) {
  DeviceKv kv = pool(10);
  DeviceKv::Hold hold = filled(kv, 1, 3);
  kv.release(hold);
  EXPECT_EQ(kv.find(keys(1, 4)), 3U);
  EXPECT_EQ(kv.free_pages(), 10U);
}

TEST(DeviceKv, TheTailOfAPrefixLeavesFirst) {
  DeviceKv kv = pool(6);
  DeviceKv::Hold hold = filled(kv, 1, 3);
  kv.release(hold);
  DeviceKv::Hold other;
  ASSERT_TRUE(kv.grow(other, 16));
  EXPECT_EQ(kv.find(keys(1, 3)), 2U);
  EXPECT_EQ(kv.evicted_blocks(), 1U);
}

TEST(DeviceKv, TheLeastRecentlyFreedLeavesFirst) {
  DeviceKv kv = pool(8);
  DeviceKv::Hold first = filled(kv, 1, 2);
  DeviceKv::Hold second = filled(kv, 2, 2);
  kv.release(first);
  kv.release(second);
  DeviceKv::Hold again;
  kv.share(again, keys(1, 2));
  kv.release(again);
  DeviceKv::Hold other;
  ASSERT_TRUE(kv.grow(other, 4 * 16));
  EXPECT_EQ(kv.find(keys(1, 2)), 2U);
  EXPECT_EQ(kv.find(keys(2, 2)), 0U);
}

TEST(DeviceKv, SharedBlocksTakeNoMorePagesAndOutliveOneHolder) {
  DeviceKv kv = pool(6);
  DeviceKv::Hold first = filled(kv, 1, 2);
  DeviceKv::Hold second;
  EXPECT_EQ(kv.idle_pages_of(keys(1, 2)), 0U);
  kv.share(second, keys(1, 2));
  EXPECT_EQ(kv.used_pages(), 4U);
  kv.release(first);
  EXPECT_EQ(kv.used_pages(), 4U);
  DeviceKv::Hold other;
  EXPECT_FALSE(kv.grow(other, 3 * 16));  // what is held is not evicted
  kv.release(second);
  EXPECT_EQ(kv.idle_pages_of(keys(1, 2)), 4U);
  EXPECT_TRUE(kv.grow(other, 3 * 16));
}

TEST(DeviceKv, ASecondCopyOfABlockStaysWithItsHolderAndLeavesWithIt) {
  DeviceKv kv = pool(8);
  DeviceKv::Hold first = filled(kv, 1, 2);
  DeviceKv::Hold second = filled(kv, 1, 2);
  EXPECT_EQ(kv.used_pages(), 8U);
  EXPECT_EQ(second.loose_pages, 4U);
  kv.release(second);
  EXPECT_EQ(kv.used_pages(), 4U);
  EXPECT_EQ(kv.find(keys(1, 2)), 2U);
}

TEST(DeviceKv, RetractedBlocksAreNotFoundAndTheirPagesAreAccountedFor) {
  DeviceKv kv = pool(8);
  DeviceKv::Hold first = filled(kv, 1, 3);
  DeviceKv::Hold second;
  kv.share(second, keys(1, 3));
  kv.retract(first, 1);
  EXPECT_EQ(kv.find(keys(1, 3)), 1U);
  EXPECT_EQ(first.pages(), 2U);
  EXPECT_EQ(second.pages(), 6U);
  kv.retract(second, 1);
  EXPECT_EQ(second.loose_pages, 4U);
  EXPECT_EQ(kv.used_pages(), 6U);
  kv.release(first);
  kv.release(second);
  EXPECT_EQ(kv.used_pages(), 0U);
  EXPECT_EQ(kv.find(keys(1, 3)), 1U);
}

TEST(DeviceKv, WithoutAPrefixCacheNothingIsFindable) {
  DeviceKv kv = pool(8, PrefixCache::kOff);
  DeviceKv::Hold hold = filled(kv, 1, 2);
  EXPECT_EQ(kv.find(keys(1, 2)), 0U);
  kv.release(hold);
  EXPECT_EQ(kv.used_pages(), 0U);
  EXPECT_EQ(kv.find(keys(1, 2)), 0U);
}

/// Pages that the holds have among them: their loose ones, and each shared block once.
std::uint64_t pages_of(std::span<const DeviceKv::Hold> holds) {
  std::uint64_t loose = 0;
  std::set<std::uint32_t> blocks;
  for (const DeviceKv::Hold& hold : holds) {
    loose += hold.loose_pages;
    for (const std::uint32_t block : hold.blocks) {
      if (block != DeviceKv::kLoose) blocks.insert(block);
    }
  }
  return loose + blocks.size() * (kBlock / DeviceKv::kPageTokens);
}

TEST(DeviceKv, PagesInUseAreThoseOfTheHoldsWhateverHappens) {
  constexpr std::uint64_t kSeed = 11;
  std::cout << "seed " << kSeed << "\n";
  Random random(kSeed);
  DeviceKv kv = pool(60);
  std::array<DeviceKv::Hold, 6> holds;
  std::array<std::uint64_t, 6> families{};
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::size_t at = random.between(0, holds.size() - 1);
    DeviceKv::Hold& hold = holds[at];
    const std::vector<BlockKey> all = keys(families[at], 12);
    const std::uint64_t what = random.between(0, 9);
    if (what == 0) {
      kv.retract(hold, static_cast<std::uint32_t>(random.between(0, hold.blocks.size())));
    } else if (what <= 2) {
      kv.release(hold);
      families[at] = random.between(1, 3);
    } else if (hold.pages() == 0 && kv.find(all) > 0) {
      const std::span<const BlockKey> found = std::span(all).first(kv.find(all));
      const std::uint64_t idle = kv.idle_pages_of(found);
      const std::uint64_t free = kv.free_pages();
      kv.share(hold, found);
      ASSERT_EQ(kv.free_pages(), free - idle);
    } else if (hold.blocks.size() < all.size() &&
               kv.grow(hold, (hold.blocks.size() + 1) * std::uint64_t{kBlock})) {
      kv.publish(hold, all[hold.blocks.size()]);
    }
    ASSERT_EQ(kv.used_pages(), pages_of(holds)) << "turn " << turn;
    ASSERT_LE(kv.used_pages(), kv.capacity_pages());
  }
  EXPECT_GT(kv.evicted_blocks(), 100U);
}

}  // namespace
}  // namespace kvstream
