#include "replay/bound.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace kvstream {
namespace {

double solve(const BoundProblem& problem) {
  const Result<double> bound = least_time_s(problem);
  EXPECT_TRUE(bound) << bound.error().message();
  return bound.value_or(-1);
}

TEST(Bound, OneDeviceTakesBytesOverRate) {
  EXPECT_DOUBLE_EQ(solve({{{100}}, {}, {{1, 0, 250}}}), 2.5);
}

TEST(Bound, NothingToReadTakesNoTime) {
  EXPECT_DOUBLE_EQ(solve({{{100}}, {}, {}}), 0);
  EXPECT_DOUBLE_EQ(solve({{{100}}, {}, {{1, 7, 0}}}), 0);
}

TEST(Bound, BlocksOnBothDevicesUseTheSumOfTheRates) {
  EXPECT_NEAR(solve({{{500}, {250}}, {}, {{3, 0, 1500}}}), 2.0, 1e-12);
}

TEST(Bound, BytesThatOnlyTheSlowDeviceHoldsCannotBeShared) {
  // 1000 at 250/s = 4 s, whatever the other does; its 100 fit beside it.
  EXPECT_NEAR(solve({{{500}, {250}}, {}, {{2, 0, 1000}, {1, 0, 100}, {3, 0, 300}}}), 4.0, 1e-12);
}

TEST(Bound, ALateReleaseLeavesTheDeviceIdleBefore) {
  // 100 B by 1 s, idle till 10 s, then 200 B.
  EXPECT_NEAR(solve({{{100}}, {}, {{1, 0, 100}, {1, 10, 200}}}), 12.0, 1e-12);
}

TEST(Bound, WorkThatIsStillQueuedAtTheSecondReleaseAddsUp) {
  EXPECT_NEAR(solve({{{100}}, {}, {{1, 0, 500}, {1, 2, 100}}}), 6.0, 1e-12);
}

TEST(Bound, FreeCreditShortensTheLastIntervalOnce) {
  EXPECT_NEAR(solve({{{100, 50}}, {}, {{1, 0, 250}}}), 2.0, 1e-12);
  EXPECT_NEAR(solve({{{100, 1000}}, {}, {{1, 0, 250}, {1, 3, 10}}}), 3.0, 1e-12)
      << "never before the last release";
}

TEST(Bound, ASharedLinkLimitsTheDevicesBehindIt) {
  EXPECT_NEAR(solve({{{100, 0, 0}, {100, 0, 0}}, {{150}}, {{3, 0, 300}}}), 2.0, 1e-12);
}

TEST(Bound, RefusesWhatNoDeviceCanServe) {
  EXPECT_FALSE(least_time_s({{{100}}, {}, {{0, 0, 1}}}));
  EXPECT_FALSE(least_time_s({{{100}}, {}, {{2, 0, 1}}}));
  EXPECT_FALSE(least_time_s({{{0}}, {}, {{1, 0, 1}}}));
  EXPECT_FALSE(least_time_s({{{100, 0, 3}}, {}, {{1, 0, 1}}}));
}

TEST(Bound, APeriodOfHundredsOfStepsIsSolvedInTime) {
  std::mt19937_64 random(7);
  BoundProblem problem;
  for (int d = 0; d < 8; ++d) problem.devices.push_back({1e8 * (1 + d)});
  double total = 0, rates = 36e8;
  for (int step = 0; step < 400; ++step) {
    for (int g = 0; g < 10; ++g) {
      const double bytes = 1e6 * static_cast<double>(1 + random() % 30);
      problem.groups.push_back({1 + random() % 255, step * 0.04, bytes});
      total += bytes;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const double bound = solve(problem);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(bound, total / rates * (1 - 1e-9));
  EXPECT_LT(took.count(), 20.0);
  RecordProperty("solve_ms", static_cast<int>(took.count() * 1e3));
}

}  // namespace
}  // namespace kvstream
