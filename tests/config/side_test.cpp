#include "config/side.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvstream {
namespace {

using testing::HasSubstr;

Mode parsed(std::string_view text, const Mode& base = {}) {
  const Result<Side> side = parse_side(text, base, "nvme");
  EXPECT_TRUE(side.has_value()) << side.error().to_string();
  return side ? side->mode : Mode{};
}

TEST(Side, IsASetOfSettingsOnTopOfTheBase) {
  Mode base;
  base.claim_blocks = 8;
  const Mode mode = parsed("policy=serial writes=inline  use-tiers=nvme,pfs", base);
  EXPECT_EQ(mode.policy, ReadPolicy::kSerial);
  EXPECT_EQ(mode.writes, WriteTiming::kInline);
  EXPECT_EQ(mode.use_tiers, (std::vector<std::string>{"nvme", "pfs"}));
  EXPECT_EQ(mode.claim_blocks, 8U);
}

TEST(Side, MayBeABarePolicy) {
  EXPECT_EQ(parsed("completion").policy, ReadPolicy::kCompletion);
  const Mode mode = parsed("shortest-queue queue-measure=finish");
  EXPECT_EQ(mode.policy, ReadPolicy::kShortestQueue);
  EXPECT_EQ(mode.queue_measure, QueueMeasure::kFinish);
}

TEST(Side, KnowsTheRivals) {
  const Mode rival = parsed("rival");
  EXPECT_EQ(rival.policy, ReadPolicy::kSerial);
  EXPECT_EQ(rival.serial_depth, SerialDepth::kRequest);
  EXPECT_EQ(rival.writes, WriteTiming::kInline);
  EXPECT_EQ(rival.use_tiers, (std::vector<std::string>{"nvme"}));
  const Mode deferred = parsed("rival-deferred");
  EXPECT_EQ(deferred.policy, ReadPolicy::kSerial);
  EXPECT_EQ(deferred.writes, WriteTiming::kDeferred);
  EXPECT_EQ(deferred.use_tiers, (std::vector<std::string>{"nvme"}));
  EXPECT_TRUE(parsed("no-cache").no_cache);
}

TEST(Side, LetsSettingsBehindAPresetWin) {
  const Mode mode = parsed("rival serial-depth=1 use-tiers=pfs");
  EXPECT_EQ(mode.serial_depth, SerialDepth::kBlock);
  EXPECT_EQ(mode.use_tiers, (std::vector<std::string>{"pfs"}));
  EXPECT_EQ(mode.writes, WriteTiming::kInline);
}

TEST(Side, IsNamedAsItWasGiven) {
  EXPECT_EQ(parse_side("policy=serial writes=inline", {}, "")->name, "policy=serial writes=inline");
}

TEST(Side, RefusesWhatItDoesNotKnow) {
  for (const char* text :
       {"", "  ", "quick", "policy=quick", "claim=2", "serial rival", "pool=1GiB", "policy="}) {
    const Result<Side> side = parse_side(text, {}, "nvme");
    ASSERT_FALSE(side.has_value()) << text;
    EXPECT_EQ(side.error().code(), Code::kInvalidArgument);
  }
  EXPECT_THAT(parse_side("quick", {}, "").error().message(), HasSubstr("rival-deferred"));
  EXPECT_THAT(parse_side("writs=inline", {}, "").error().message(), HasSubstr("\"writes\""));
}

TEST(PolicyList, GivesOneSideEach) {
  const Result<std::vector<Side>> sides = parse_policy_list("serial,pooled,completion", {});
  ASSERT_TRUE(sides.has_value()) << sides.error().to_string();
  ASSERT_EQ(sides->size(), 3U);
  EXPECT_EQ((*sides)[0].mode.policy, ReadPolicy::kSerial);
  EXPECT_EQ((*sides)[2].name, "completion");
  EXPECT_FALSE(parse_policy_list("", {}).has_value());
  EXPECT_FALSE(parse_policy_list("serial,quick", {}).has_value());
}

}  // namespace
}  // namespace kvstream
