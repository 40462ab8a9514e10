#include "memory/buffer_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <latch>
#include <set>
#include <thread>

namespace kvstream {
namespace {

using testing::HasSubstr;

std::unique_ptr<BufferPool> open_pool(std::uint64_t bytes, std::uint32_t slab_bytes) {
  auto pool = BufferPool::open({.bytes = bytes, .slab_bytes = slab_bytes, .numa_node = -1});
  EXPECT_TRUE(pool.has_value()) << pool.error().to_string();
  return pool ? std::move(*pool) : nullptr;
}

TEST(BufferPool, HandsOutEachSlabOnceAndThenNone) {
  const auto pool = open_pool(8U << 20U, 1U << 20U);
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->count(), 8U);
  std::set<std::byte*> slabs;
  while (std::byte* slab = pool->take()) {
    const Span region = pool->region();
    EXPECT_GE(slab, region.data);
    EXPECT_LE(slab + pool->slab_bytes(), region.data + region.size_bytes);
    slabs.insert(slab);
  }
  EXPECT_EQ(slabs.size(), 8U);
  EXPECT_EQ(pool->free_count(), 0U);
  for (std::byte* slab : slabs) pool->give(slab);
  EXPECT_EQ(pool->free_count(), 8U);
  EXPECT_NE(pool->take(), nullptr);
}

TEST(BufferPool, RoundsSlabsUpAndTheirCountDown) {
  const auto pool = open_pool(100'000, 5000);
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->slab_bytes(), 8192U);
  EXPECT_EQ(pool->count(), 12U);
}

TEST(BufferPool, AlignsItsMemoryToHugePagesAndSaysWhichItGot) {
  const auto pool = open_pool(4U << 20U, 4096);
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool->region().data) % (2U << 20U), 0U);
  EXPECT_THAT(pool->mode(), HasSubstr("pages"));
}

TEST(BufferPool, RefusesAPoolWithoutASlab) {
  const auto pool = BufferPool::open({.bytes = 4096, .slab_bytes = 8192, .numa_node = -1});
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(BufferPool::open({.bytes = 4096, .slab_bytes = 0, .numa_node = -1}).has_value());
}

TEST(BufferPool, RefusesMoreMemoryThanThereIs) {
  const auto pool =
      BufferPool::open({.bytes = 1ULL << 50U, .slab_bytes = 1U << 30U, .numa_node = -1});
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code(), Code::kNoSpace);
  EXPECT_THAT(pool.error().message(), HasSubstr("1125899906842624 B"));
}

TEST(BufferPool, WithoutBackingHandsOutAddressesThatNobodyMayTouch) {
  const auto pool = BufferPool::open({.bytes = 1ULL << 38U,
                                      .slab_bytes = 1U << 30U,
                                      .numa_node = -1,
                                      .backing = BufferPool::Backing::kNone});
  ASSERT_TRUE(pool.has_value()) << pool.error().to_string();
  EXPECT_EQ((*pool)->count(), 256U);
  std::byte* slab = (*pool)->take();
  ASSERT_NE(slab, nullptr);
  EXPECT_THAT((*pool)->mode(), HasSubstr("no memory"));
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(*static_cast<volatile std::byte*>(slab) = std::byte{1}, "");
  (*pool)->give(slab);
  EXPECT_EQ((*pool)->free_count(), 256U);
}

TEST(BufferPool, IgnoresASlabThatIsNone) {
  const auto pool = open_pool(2U << 20U, 1U << 20U);
  ASSERT_NE(pool, nullptr);
  pool->give(nullptr);
  EXPECT_EQ(pool->free_count(), pool->count());
}

TEST(BufferPool, NeverGivesOneSlabToTwoThreads) {
  // So few slabs that a thread which was interrupted in take() often finds the same slab on top
  // again, with another one below it.
  constexpr std::uint32_t kSlabs = 6;
  const auto pool = open_pool(kSlabs * 4096, 4096);
  ASSERT_NE(pool, nullptr);
  std::atomic<bool> wrong{false};
  const int rounds = std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 20'000'000 : 500'000;
  std::latch start(4);
  std::vector<std::thread> threads;
  for (int id = 1; id <= 4; ++id) {
    threads.emplace_back([&, id] {
      start.arrive_and_wait();
      for (int round = 0; round < rounds; ++round) {
        std::byte* slabs[3] = {pool->take(), pool->take(), pool->take()};
        for (std::byte* slab : slabs) {
          if (slab != nullptr) std::memset(slab, id, 16);
        }
        for (std::byte* slab : slabs) {
          if (slab == nullptr) continue;
          for (int i = 0; i < 16; ++i) {
            if (slab[i] != static_cast<std::byte>(id)) wrong = true;
          }
          pool->give(slab);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(pool->free_count(), kSlabs);
  std::set<std::byte*> slabs;
  while (std::byte* slab = pool->take()) slabs.insert(slab);
  EXPECT_EQ(slabs.size(), kSlabs);
}

TEST(BufferPool, LeavesAbandonedMemoryMapped) {
  auto pool = open_pool(2U << 20U, 1U << 20U);
  ASSERT_NE(pool, nullptr);
  const Span region = pool->region();
  pool->abandon();
  pool.reset();
  std::memset(region.data, 1, region.size_bytes);
  EXPECT_EQ(region.data[0], std::byte{1});
}

}  // namespace
}  // namespace kvstream
