#include "replay/rank_steps.hpp"

#include <gtest/gtest.h>

#include <random>

namespace kvstream {
namespace {

RankSteps sample() {
  RankSteps steps;
  steps.rank = 3;
  steps.device_of_tier = {0, kNoDevice, 2};
  steps.memory_device = 1;
  steps.clock_offset = -5;
  StepRecord step;
  step.released_at = 100;
  step.ended_at = 900;
  step.blocks = {{11, 3, 4096, 1, true}, {12, 1, 100, 0, false}};
  step.reads = {{110, 300, 0, 1, true, true}, {120, 350, 1, 0, false, false}};
  steps.steps = {step, StepRecord{}};
  return steps;
}

TEST(RankSteps, ComeBackAsTheyWere) {
  const RankSteps sent = sample();
  const Result<RankSteps> got = unpack_rank_steps(pack_rank_steps(sent));
  ASSERT_TRUE(got) << got.error().message();
  EXPECT_EQ(pack_rank_steps(*got), pack_rank_steps(sent));
  EXPECT_EQ(got->rank, 3u);
  EXPECT_EQ(got->device_of_tier, sent.device_of_tier);
  EXPECT_EQ(got->clock_offset, -5);
  ASSERT_EQ(got->steps.size(), 2u);
  EXPECT_EQ(got->steps[0].blocks[1].key64, 12u);
  EXPECT_FALSE(got->steps[0].blocks[1].hit);
  EXPECT_TRUE(got->steps[0].reads[0].hedge);
  EXPECT_EQ(got->steps[0].reads[1].ended_at, 350);
}

TEST(RankSteps, EveryCutIsRefused) {
  const std::string packed = pack_rank_steps(sample());
  for (std::size_t length = 0; length < packed.size(); ++length) {
    EXPECT_FALSE(unpack_rank_steps(packed.substr(0, length))) << length;
  }
  EXPECT_FALSE(unpack_rank_steps(packed + "x"));
}

TEST(RankSteps, FlippedBytesNeverAskForMoreMemoryThanTheyBring) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string packed = pack_rank_steps(sample());
    packed[random() % packed.size()] ^= static_cast<char>(1 + random() % 255);
    const Result<RankSteps> got = unpack_rank_steps(packed);
    if (!got) continue;
    EXPECT_LE(got->steps.size(), packed.size());
  }
}

}  // namespace
}  // namespace kvstream
