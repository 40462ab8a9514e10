#include "memory/arena.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace kvstream {
namespace {

using testing::HasSubstr;

std::unique_ptr<Arena> open_arena(std::uint64_t bytes) {
  auto arena = Arena::open({.bytes = bytes});
  EXPECT_TRUE(arena.has_value()) << arena.error().to_string();
  return arena ? std::move(*arena) : nullptr;
}

TEST(Arena, IsWritableAlignedAndRoundedUp) {
  const auto arena = open_arena((4U << 20U) + 1);
  ASSERT_NE(arena, nullptr);
  const Span region = arena->region();
  EXPECT_EQ(region.size_bytes, 6U << 20U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.data) % (2U << 20U), 0U);
  std::memset(region.data, 0xab, region.size_bytes);
  EXPECT_EQ(region.data[region.size_bytes - 1], std::byte{0xab});
}

TEST(Arena, IsAllocatedInFullWhenItIsOpened) {
  const auto arena = open_arena(8U << 20U);
  ASSERT_NE(arena, nullptr);
  struct stat info {};
  ASSERT_EQ(::fstat(arena->fd(), &info), 0);
  EXPECT_EQ(info.st_size, 8 << 20);
  EXPECT_GE(info.st_blocks * 512, 8 << 20);
}

TEST(Arena, CanBeReadThroughItsDescriptorAndShowsLaterWrites) {
  const auto arena = open_arena(2U << 20U);
  ASSERT_NE(arena, nullptr);
  void* view = ::mmap(nullptr, 2U << 20U, PROT_READ, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(view, MAP_FAILED);
  arena->region().data[12345] = std::byte{0x77};
  EXPECT_EQ(static_cast<const std::byte*>(view)[12345], std::byte{0x77});
  EXPECT_NE(::mprotect(view, 2U << 20U, PROT_READ | PROT_WRITE), 0);
  ::munmap(view, 2U << 20U);
}

TEST(Arena, RefusesResizingAndWritingByOthers) {
  const auto arena = open_arena(2U << 20U);
  ASSERT_NE(arena, nullptr);
  EXPECT_NE(::ftruncate(arena->fd(), 4096), 0);
  EXPECT_NE(::ftruncate(arena->fd(), 4U << 20U), 0);
  EXPECT_LT(::write(arena->fd(), "x", 1), 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd(), 0), MAP_FAILED);
  EXPECT_NE(::fallocate(arena->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
}

TEST(Arena, SaysWhatItGot) {
  const auto arena = open_arena(2U << 20U);
  ASSERT_NE(arena, nullptr);
  EXPECT_THAT(arena->mode(), HasSubstr("memfd"));
  EXPECT_THAT(arena->mode(), HasSubstr("sealed"));
  EXPECT_THAT(arena->mode(), HasSubstr("pages"));
}

TEST(Arena, PrefersANumaNodeOrSaysThatItDoesNot) {
  auto arena = Arena::open({.bytes = 2U << 20U, .numa_node = 0});
  ASSERT_TRUE(arena.has_value()) << arena.error().to_string();
  EXPECT_THAT((*arena)->mode(), testing::AnyOf(HasSubstr("node 0"), HasSubstr("no NUMA binding")));
}

TEST(Arena, RefusesMoreMemoryThanThereIsAndNone) {
  const auto large = Arena::open({.bytes = 1ULL << 50U});
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code(), Code::kNoSpace);
  const auto empty = Arena::open({.bytes = 0});
  ASSERT_FALSE(empty.has_value());
  EXPECT_EQ(empty.error().code(), Code::kInvalidArgument);
}

TEST(Arena, OutlivesItsOwnerWhenAbandoned) {
  auto arena = open_arena(2U << 20U);
  ASSERT_NE(arena, nullptr);
  const Span region = arena->region();
  arena->abandon();
  arena.reset();
  std::memset(region.data, 1, region.size_bytes);
  EXPECT_EQ(region.data[0], std::byte{1});
}

}  // namespace
}  // namespace kvstream
