#include "replay/comparison.hpp"

#include <gtest/gtest.h>

namespace kvstream {
namespace {

using nlohmann::json;

json run_of(double throughput, double read_s, double hit_ratio = 0.5) {
  return {
      {"throughput_tokens_per_s", throughput},
      {"ttft_s", {{"mean", 1.0 / throughput}}},
      {"step_read_s", {{"mean", read_s}}},
      {"makespan_s", 10.0},
      {"bytes", {{"read", {{"nvme", 1e9}, {"pfs", 0}}}, {"written", {{"nvme", 0}, {"pfs", 0}}}}},
      {"io_share", 0.5},
      {"write_wait_share", 0.0},
      {"blocks", {{"hit_ratio", hit_ratio}}},
      {"writes", {{"dropped", 0}}},
      {"cost", {{"steal_share", 0.0}}},
      {"bound", nullptr},
      {"catalog_hash_at_start", "h"}};
}

SideRuns side_of(const char* name, ReadPolicy policy, std::vector<json> runs) {
  SideRuns side;
  side.side.name = name;
  side.side.mode.policy = policy;
  side.runs = std::move(runs);
  return side;
}

ComparisonContext two_tiers() {
  ComparisonContext context;
  context.tiers.resize(2);
  context.tiers[0].spec.name = "nvme";
  context.tiers[1].spec.name = "pfs";
  context.read_rates_bytes_per_s = {500e6, 250e6};
  context.copies_everywhere = true;
  return context;
}

TEST(OrderOfSides, EachSideComesFirstEquallyOften) {
  std::vector<int> first(3);
  for (std::size_t pair = 0; pair < 9; ++pair) ++first[order_of_sides(3, pair).front()];
  EXPECT_EQ(first, (std::vector<int>{3, 3, 3}));
  EXPECT_EQ(order_of_sides(3, 1), (std::vector<std::size_t>{1, 2, 0}));
}

TEST(CompareSides, ARatioStandsBesideItsCeiling) {
  const std::vector<SideRuns> sides{
      side_of("serial", ReadPolicy::kSerial, {run_of(100, 0.3), run_of(110, 0.3)}),
      side_of("completion", ReadPolicy::kCompletion, {run_of(120, 0.2), run_of(132, 0.2)})};
  const auto lines = compare_sides(sides, two_tiers());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].side, "completion");
  EXPECT_EQ(lines[0].rival, "serial");
  EXPECT_NEAR(lines[0].ratio.ratio, 1.2, 1e-9);
  ASSERT_TRUE(lines[0].ceiling);
  // A = 1 - 0.5 + 0.5 * 500/750 = 0.8333
  EXPECT_NEAR(*lines[0].ceiling, 1.2, 1e-6);
  EXPECT_NEAR(lines[2].ratio.ratio, 1.5, 1e-9);
  ASSERT_TRUE(lines[2].ceiling);
  EXPECT_NEAR(*lines[2].ceiling, 1.5, 1e-9);
}

TEST(CompareSides, SeveralRanksHaveNoCeilingForAStepsReadTime) {
  const std::vector<SideRuns> sides{
      side_of("serial", ReadPolicy::kSerial, {run_of(100, 0.3)}),
      side_of("completion", ReadPolicy::kCompletion, {run_of(120, 0.2)})};
  auto context = two_tiers();
  context.ranks = 4;
  const auto lines = compare_sides(sides, context);
  EXPECT_FALSE(lines[2].ceiling);
  // Throughput: compute alone is half of the time; the devices were busy for 1 GB / 0.75 GB/s of 10
  // s.
  ASSERT_TRUE(lines[0].ceiling);
  EXPECT_NEAR(*lines[0].ceiling, 2.0, 1e-9);
}

TEST(CompareSides, UnequalHitRatiosAndContentsAreSaid) {
  auto other = run_of(120, 0.2, 0.6);
  other["catalog_hash_at_start"] = "x";
  const std::vector<SideRuns> sides{side_of("serial", ReadPolicy::kSerial, {run_of(100, 0.3)}),
                                    side_of("completion", ReadPolicy::kCompletion, {other})};
  const auto lines = compare_sides(sides, two_tiers());
  EXPECT_NE(lines[0].note.find("hit ratios differ by 10.0 points"), std::string::npos);
  EXPECT_NE(lines[0].note.find("contents at the start differed"), std::string::npos);
  EXPECT_FALSE(lines[0].ceiling);
}

TEST(CompareSides, CompletionIsHeldAgainstEveryOtherSide) {
  const std::vector<SideRuns> sides{
      side_of("serial", ReadPolicy::kSerial, {run_of(100, 0.3)}),
      side_of("static", ReadPolicy::kStatic, {run_of(110, 0.25)}),
      side_of("completion", ReadPolicy::kCompletion, {run_of(120, 0.2)})};
  const auto lines = compare_sides(sides, two_tiers());
  int against_static = 0;
  for (const auto& line : lines)
    against_static += line.side == "completion" && line.rival == "static";
  EXPECT_EQ(against_static, 3);
}

}  // namespace
}  // namespace kvstream
