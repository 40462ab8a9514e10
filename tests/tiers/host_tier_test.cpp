#include "tiers/host_tier.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <variant>
#include <vector>

namespace kvstream {
namespace {

std::unique_ptr<HostTier> open_tier(std::uint64_t cap_bytes, std::uint32_t block_bytes_max) {
  HostTier::Options options;
  options.cap_bytes = cap_bytes;
  options.block_bytes_max = block_bytes_max;
  auto tier = HostTier::open(options);
  EXPECT_TRUE(tier) << tier.error().to_string();
  return std::move(*tier);
}

Completion only_completion(Tier& tier) {
  std::array<Completion, 2> done;
  EXPECT_EQ(tier.poll(done), 1U);
  return done[0];
}

TEST(HostTier, SlotsAreWholePagesOfMemory) {
  const auto tier = open_tier(100'000, 5'000);
  EXPECT_EQ(tier->report().capacity_bytes, 12U * 8192U);
  const auto first = tier->reserve(1).value(), second = tier->reserve(1).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tier->view(first)) % 4096, 0U);
  EXPECT_EQ(std::abs(tier->view(second) - tier->view(first)), 8192);
}

TEST(HostTier, ACapBelowOneBlockIsRefusedWithTheCure) {
  HostTier::Options options;
  options.name = "ram";
  options.cap_bytes = 1000;
  options.block_bytes_max = 4096;
  const auto tier = HostTier::open(options);
  ASSERT_FALSE(tier);
  EXPECT_EQ(tier.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(tier.error().message(), testing::HasSubstr("ram"));
}

TEST(HostTier, MoreMemoryThanTheMachineHasIsRefused) {
  HostTier::Options options;
  options.cap_bytes = 1ULL << 50U;
  options.block_bytes_max = 1U << 30U;
  EXPECT_FALSE(HostTier::open(options));
}

TEST(HostTier, AReadBeyondWhatWasWrittenIsNotGood) {
  const auto tier = open_tier(1U << 20U, 4096);
  const SlotRef at = tier->reserve(4096).value();
  std::vector<std::byte> bytes(4096);
  Span span{bytes.data(), bytes.size()};
  ReadOp read{1, at, 100, {&span, 1}};
  ASSERT_EQ(tier->submit_reads({&read, 1}), 1U);
  EXPECT_EQ(only_completion(*tier).code, Code::kIoError);
  WriteOp write;
  write.id = 2;
  write.at = at;
  write.size_bytes = 99;
  write.from = bytes.data();
  ASSERT_EQ(tier->submit_writes({&write, 1}), 1U);
  EXPECT_EQ(only_completion(*tier).code, Code::kOk);
  ASSERT_EQ(tier->submit_reads({&read, 1}), 1U);
  EXPECT_EQ(only_completion(*tier).code, Code::kIoError);
  EXPECT_EQ(tier->report().errors, 2U);
}

TEST(HostTier, AStaleLocationIsNotFoundAndCannotBeFreedOrWritten) {
  const auto tier = open_tier(4096, 4096);
  const SlotRef old = tier->reserve(10).value();
  tier->free(old);
  tier->free(old);
  const SlotRef fresh = tier->reserve(10).value();
  EXPECT_FALSE(tier->reserve(10)) << "a second free of one slot made two";
  tier->free(old);
  EXPECT_EQ(tier->report().used_bytes, 4096U);
  std::byte byte{};
  WriteOp write;
  write.at = old;
  write.size_bytes = 1;
  write.from = &byte;
  ASSERT_EQ(tier->submit_writes({&write, 1}), 1U);
  EXPECT_EQ(only_completion(*tier).code, Code::kNotFound);
  EXPECT_NE(tier->view(fresh), nullptr);
  EXPECT_EQ(tier->view(old), nullptr);
  EXPECT_EQ(tier->view({0, 77, 1}), nullptr);
}

TEST(HostTier, TheFactoryTakesItsSizesFromSpecAndContext) {
  TierSpec spec;
  spec.name = "ram";
  spec.kind = "host";
  spec.cap_bytes = 1U << 20U;
  TierContext context;
  context.block_bytes_max = 1U << 18U;
  context.node = "n7";
  auto made = host_tier_factory()(spec, context);
  ASSERT_TRUE(made) << made.error().to_string();
  const auto& tier = std::get<std::unique_ptr<Tier>>(*made);
  EXPECT_EQ(tier->traits().name, "ram");
  EXPECT_EQ(tier->traits().device_id, "host:n7");
  EXPECT_TRUE(tier->traits().addressable);
  EXPECT_TRUE(tier->traits().trusted);
  EXPECT_FALSE(tier->traits().persistent);
  EXPECT_EQ(tier->report().capacity_bytes, 1U << 20U);
}

}  // namespace
}  // namespace kvstream
