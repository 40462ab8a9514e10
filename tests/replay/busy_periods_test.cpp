#include "replay/busy_periods.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvstream {
namespace {

constexpr std::uint32_t kMegabyte = 1'000'000;

Nanos at(double seconds) { return static_cast<Nanos>(seconds * 1e9); }

/// Blocks first, first + 1, ... of 1 MB that the tiers in the mask hold.
StepRecord step(double released_s, double ended_s, std::uint64_t first_key, std::size_t blocks,
                std::uint64_t tiers) {
  StepRecord record;
  record.released_at = at(released_s);
  record.ended_at = at(ended_s);
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto served = static_cast<std::uint8_t>(__builtin_ctzll(tiers));
    record.blocks.push_back({first_key + i, tiers, kMegabyte, served, true});
  }
  return record;
}

std::vector<DeviceSpeed> nvme_and_pfs() {
  return {{"nvme:node0", 500e6, 400e6, 0}, {"pfs", 250e6, 200e6, 0}};
}

RankSteps rank_of(std::uint32_t rank, std::vector<StepRecord> steps) {
  RankSteps result;
  result.rank = rank;
  result.device_of_tier = {0, 1};
  result.steps = std::move(steps);
  return result;
}

BoundReport find(const std::vector<DeviceSpeed>& devices, const std::vector<RankSteps>& ranks) {
  Result<BoundReport> report = find_busy_periods(devices, ranks);
  EXPECT_TRUE(report) << report.error().message();
  return report.value_or(BoundReport{});
}

TEST(BusyPeriods, OneLongStepCountsWithTheSumOfTheRates) {
  const BoundReport report = find(nvme_and_pfs(), {rank_of(0, {step(10, 12.5, 1, 1500, 3)})});
  ASSERT_EQ(report.periods.size(), 1u);
  EXPECT_TRUE(report.periods[0].counts);
  EXPECT_EQ(report.periods[0].bytes, 1500ull * kMegabyte);
  EXPECT_NEAR(report.periods[0].t_star_s, 2.0, 1e-9);
  EXPECT_NEAR(*report.periods[0].t_star_joint_s, 2.5, 1e-9);
  EXPECT_NEAR(report.efficiency.value_or(0), 0.8, 1e-9);
  EXPECT_NEAR(report.efficiency_joint.value_or(0), 1.0, 1e-9);
  EXPECT_NEAR(report.periods[0].work_share, 0.8, 1e-9);
}

TEST(BusyPeriods, EfficiencyIsNullWhenNoPeriodCounts) {
  const BoundReport report = find(nvme_and_pfs(), {rank_of(0, {step(0, 0.5, 1, 300, 3)})});
  EXPECT_FALSE(report.efficiency);
  EXPECT_EQ(report.counting, 0u);
  EXPECT_NEAR(report.work_share_of_others.value_or(0), 300.0 / (750 * 0.5), 1e-9);
  EXPECT_NEAR(report.others_step_s, 0.5, 1e-9);
  EXPECT_NEAR(report.others_block_read_s, 1.0 / 500, 1e-9) << "at the fastest device";
  EXPECT_TRUE(to_json(report, 1)["efficiency"].is_null());
}

TEST(BusyPeriods, APeriodOfExactlyHalfASecondCounts) {
  const BoundReport report = find(nvme_and_pfs(), {rank_of(0, {step(0, 1, 1, 375, 3)})});
  EXPECT_EQ(report.counting, 1u);
}

TEST(BusyPeriods, OverlappingStepsOfRanksThatShareADeviceAreOnePeriod) {
  const BoundReport report =
      find(nvme_and_pfs(), {rank_of(0, {step(0, 2, 1, 500, 3)}),
                            rank_of(1, {step(0.1, 3, 1001, 1000, 3), step(3.5, 4, 3001, 75, 3)})});
  ASSERT_EQ(report.periods.size(), 2u);
  EXPECT_EQ(report.periods[0].steps, 2u);
  EXPECT_NEAR(report.periods[0].t_s, 3, 1e-9);
  EXPECT_NEAR(report.periods[0].t_star_s, 2.0, 1e-9);
  EXPECT_TRUE(report.periods[0].counts);
  EXPECT_FALSE(report.periods[1].counts) << "T* is 0.1 s";
}

TEST(BusyPeriods, RanksThatShareNothingHavePeriodsOfTheirOwn) {
  const std::vector<DeviceSpeed> devices = {{"a", 100e6, 0, 0}, {"b", 100e6, 0, 0}};
  RankSteps on_a = rank_of(0, {step(0, 2, 1, 100, 1)});
  RankSteps on_b = rank_of(1, {step(1, 3, 1001, 100, 1)});
  on_b.device_of_tier = {1};
  const BoundReport report = find(devices, {on_a, on_b});
  ASSERT_EQ(report.periods.size(), 2u);
  EXPECT_NEAR(report.periods[0].t_star_s, 1.0, 1e-9);
  EXPECT_FALSE(report.periods[0].t_star_joint_s) << "joint rates were not measured";
  EXPECT_FALSE(report.efficiency_joint);
}

TEST(BusyPeriods, RanksAreJoinedThroughAThirdThatSharesWithBoth) {
  const std::vector<DeviceSpeed> devices = {{"a", 100e6, 0, 0}, {"b", 100e6, 0, 0}};
  RankSteps on_b = rank_of(1, {step(1, 3, 1001, 100, 1)});
  on_b.device_of_tier = {1};
  RankSteps on_both = rank_of(2, {step(10, 11, 2001, 10, 3)});
  const BoundReport report = find(devices, {rank_of(0, {step(0, 2, 1, 100, 1)}), on_b, on_both});
  ASSERT_EQ(report.periods.size(), 2u);
  EXPECT_EQ(report.periods[0].steps, 2u);
}

TEST(BusyPeriods, ALateReleaseKeepsAPeriodFromCounting) {
  const auto late = find(nvme_and_pfs(), {rank_of(0, {step(0, 3, 1, 1500, 3)}),
                                          rank_of(1, {step(0.5, 4, 5001, 750, 3)})});
  EXPECT_NEAR(late.periods.at(0).last_release_share, 0.125, 1e-9);
  EXPECT_FALSE(late.periods[0].counts);
  const auto early = find(nvme_and_pfs(), {rank_of(0, {step(0, 3, 1, 1500, 3)}),
                                           rank_of(1, {step(0.3, 4, 5001, 750, 3)})});
  EXPECT_TRUE(early.periods.at(0).counts);
}

TEST(BusyPeriods, AKeyThatTwoStepsWantCountsOnceOnTheDevices) {
  RankSteps first = rank_of(0, {step(0, 4, 1, 1500, 3)});
  RankSteps second = rank_of(1, {step(0, 4, 1, 1500, 3)});
  const BoundReport without_memory = find(nvme_and_pfs(), {first, second});
  EXPECT_NEAR(without_memory.periods.at(0).t_star_s, 2.0, 1e-9);
  EXPECT_EQ(without_memory.periods[0].bytes, 1500ull * kMegabyte);

  std::vector<DeviceSpeed> devices = nvme_and_pfs();
  devices.push_back({"memory:node0", 500e6, 500e6, 0});
  first.memory_device = second.memory_device = 2;
  const BoundReport report = find(devices, {first, second});
  EXPECT_NEAR(report.periods.at(0).t_star_s, 3.0, 1e-9) << "the second asker's copies bound it";
  EXPECT_EQ(report.periods[0].bytes, 3000ull * kMegabyte);
}

TEST(BusyPeriods, WorkShareLeavesOutTheMemoryThatFurtherAskersUse) {
  RankSteps first = rank_of(0, {step(0, 0.5, 1, 300, 3)});
  RankSteps second = rank_of(1, {step(0, 0.5, 1, 300, 3)});
  std::vector<DeviceSpeed> devices = nvme_and_pfs();
  devices.push_back({"memory:node0", 20e9, 0, 0});
  first.memory_device = second.memory_device = 2;
  const BoundReport report = find(devices, {first, second});
  EXPECT_FALSE(report.periods.at(0).counts);
  EXPECT_NEAR(report.periods[0].work_share, 300.0 / (750 * 0.5), 1e-9);
  EXPECT_NEAR(report.work_share_of_others.value_or(0), 300.0 / (750 * 0.5), 1e-9);
}

TEST(BusyPeriods, WorkShareTakesTheDevicesThatCouldServeThePeriodAlone) {
  const BoundReport report =
      find(nvme_and_pfs(), {rank_of(0, {step(0, 0.5, 1, 100, 1), step(1, 1.5, 500, 50, 2)})});
  ASSERT_EQ(report.periods.size(), 2u);
  EXPECT_NEAR(report.periods[0].work_share, 100.0 / (500 * 0.5), 1e-9);
  EXPECT_NEAR(report.work_share_of_others.value_or(0), 150.0 / (500 * 0.5 + 250 * 0.5), 1e-9);
}

TEST(BusyPeriods, AKeyCountsAgainInTheNextPeriod) {
  const BoundReport report =
      find(nvme_and_pfs(), {rank_of(0, {step(0, 2, 1, 1500, 3), step(3, 5, 1, 1500, 3)})});
  ASSERT_EQ(report.counting, 2u);
  EXPECT_NEAR(report.t_star_s, 4.0, 1e-9);
}

TEST(BusyPeriods, MissesAreNoWork) {
  StepRecord record = step(0, 2, 1, 1500, 3);
  for (std::size_t i = 750; i < 1500; ++i) record.blocks[i].hit = false;
  const BoundReport report = find(nvme_and_pfs(), {rank_of(0, {record})});
  EXPECT_NEAR(report.periods.at(0).t_star_s, 1.0, 1e-9);
}

TEST(BusyPeriods, TiersWithoutADeviceTakeNoTime) {
  RankSteps rank = rank_of(0, {step(0, 2, 1, 1500, 3)});
  rank.device_of_tier = {kNoDevice, 1};
  EXPECT_TRUE(find(nvme_and_pfs(), {rank}).periods.empty());
}

TEST(BusyPeriods, FreeCreditShortensTheBound) {
  std::vector<DeviceSpeed> devices = nvme_and_pfs();
  devices[0].credit_bytes = 50e6;
  devices[1].credit_bytes = 25e6;
  const BoundReport report = find(devices, {rank_of(0, {step(0, 2, 1, 1500, 3)})});
  EXPECT_NEAR(report.periods.at(0).t_star_s, (1500 - 75) / 750.0, 1e-9);
}

TEST(BusyPeriods, AnEfficiencyAboveItsBoundFailsTheRun) {
  const BoundReport fine = find(nvme_and_pfs(), {rank_of(0, {step(0, 1.99, 1, 1500, 3)})});
  EXPECT_TRUE(check_bound(fine).is_ok()) << *fine.efficiency;
  const BoundReport wrong = find(nvme_and_pfs(), {rank_of(0, {step(0, 1.9, 1, 1500, 3)})});
  EXPECT_FALSE(check_bound(wrong).is_ok());
}

TEST(BusyPeriods, RefusesMapsAndTimesThatCannotBe) {
  RankSteps rank = rank_of(0, {step(0, 2, 1, 10, 1)});
  rank.device_of_tier = {7};
  EXPECT_FALSE(find_busy_periods(nvme_and_pfs(), std::vector{rank}));
  EXPECT_FALSE(find_busy_periods(nvme_and_pfs(), std::vector{rank_of(0, {step(2, 1, 1, 1, 1)})}));
  const std::vector<DeviceSpeed> unmeasured = {{"a", 0, 0, 0}};
  EXPECT_FALSE(find_busy_periods(unmeasured, std::vector{rank_of(0, {})}));
}

TEST(BusyPeriods, ClockOffsetsPutRanksOnOneAxis) {
  RankSteps far = rank_of(1, {step(1000.1, 1002, 1001, 750, 3)});
  far.clock_offset = at(-1000);
  const BoundReport report = find(nvme_and_pfs(), {rank_of(0, {step(0, 2, 1, 750, 3)}), far});
  EXPECT_EQ(report.periods.size(), 1u);
}

TEST(BusyPeriods, SharesAreUnionsWithinTheRun) {
  const std::vector<RankSteps> ranks = {rank_of(0, {step(1, 3, 1, 1, 3), step(2, 4, 10, 1, 3)}),
                                        rank_of(1, {step(3, 5, 20, 1, 3), step(9, 12, 30, 1, 3)})};
  EXPECT_NEAR(read_busy_share(ranks, at(0), at(10)), 0.5, 1e-9);
  EXPECT_NEAR(io_share(ranks, at(0), at(10)), (0.3 + 0.3) / 2, 1e-9);
  EXPECT_EQ(read_busy_share(ranks, at(5), at(5)), 0);
  EXPECT_EQ(step_read_times_s(ranks), (std::vector<double>{2, 2, 2, 3}));
}

TEST(BusyPeriods, JsonHasRatesHereAndRepresented) {
  const BoundReport report = find(nvme_and_pfs(), {rank_of(0, {step(10, 12.5, 1, 1500, 3)})});
  const nlohmann::json json = to_json(report, 12.8);
  EXPECT_DOUBLE_EQ(json["bandwidth_bytes_per_s"]["nvme:node0"]["here"], 500e6);
  EXPECT_DOUBLE_EQ(json["bandwidth_bytes_per_s"]["nvme:node0"]["represented"], 6.4e9);
  EXPECT_EQ(json["periods"].size(), 1u);
  EXPECT_DOUBLE_EQ(json["periods"][0]["start_s"], 0);
}

}  // namespace
}  // namespace kvstream
