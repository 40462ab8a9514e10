#include "replay/timeline.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace kvstream {
namespace {

std::vector<RankSteps> two_ranks() {
  StepRecord step;
  step.released_at = 1'000'000;
  step.ended_at = 5'000'000;
  step.blocks = {{1, 3, 4096, 0, true}, {2, 3, 8192, 1, true}};
  step.reads = {{1'100'000, 2'000'000, 0, 0, false, true},
                {1'200'000, 4'000'000, 1, 1, false, true},
                {1'300'000, 4'500'000, 1, 0, true, false}};
  RankSteps first, second;
  first.steps = {step};
  second.rank = 1;
  second.steps = {step};
  return {first, second};
}

TEST(Timeline, EachReadIsOneSpanOnTheTrackOfItsRankAndSource) {
  const std::vector<RankSteps> ranks = two_ranks();
  std::ostringstream out;
  write_timeline(out, std::vector<TimelineRun>{{"completion", {"nvme0", "pfs0"}, ranks}});
  const nlohmann::json trace = nlohmann::json::parse(out.str());

  std::map<std::pair<int, std::string>, int> reads;
  std::map<int, double> open;
  int steps = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "b") {
      open[event["id"]] = event["ts"];
      if (event["cat"] == "read") ++reads[{event["pid"], event["name"]}];
      if (event["cat"] == "step") ++steps;
    }
    if (event["ph"] == "e") {
      ASSERT_TRUE(open.contains(event["id"]));
      EXPECT_GE(event["ts"].get<double>(), open[event["id"]]);
      open.erase(event["id"]);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(steps, 2);
  EXPECT_EQ((reads[{1, "nvme0"}]), 2);
  EXPECT_EQ((reads[{2, "pfs0"}]), 1);
}

TEST(Timeline, TimesStartAtTheFirstStep) {
  const std::vector<RankSteps> ranks = two_ranks();
  std::ostringstream out;
  write_timeline(out, std::vector<TimelineRun>{{"completion", {"nvme0", "pfs0"}, ranks}});
  double first = 1e9;
  const nlohmann::json trace = nlohmann::json::parse(out.str());
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event.contains("ts")) first = std::min(first, event["ts"].get<double>());
  }
  EXPECT_EQ(first, 0);
}

TEST(Timeline, ARunWithoutStepsIsStillATrace) {
  std::ostringstream out;
  write_timeline(out, {});
  EXPECT_TRUE(nlohmann::json::parse(out.str())["traceEvents"].empty());
}

TEST(Timeline, AFileThatCannotBeWrittenIsSaid) {
  EXPECT_FALSE(write_timeline_file("/no/such/directory/x.json", {}).is_ok());
}

}  // namespace
}  // namespace kvstream
