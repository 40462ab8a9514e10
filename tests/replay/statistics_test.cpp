#include "replay/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace kvstream {
namespace {

RatioInterval ratios(const std::vector<double>& numerators) {
  const std::vector<double> ones(numerators.size(), 1.0);
  const Result<RatioInterval> interval = paired_ratio(numerators, ones);
  EXPECT_TRUE(interval) << interval.error().message();
  return interval.value_or(RatioInterval{});
}

TEST(Statistics, PercentilesInterpolateBetweenOrderStatistics) {
  const Summary summary = summarize({5, 1, 4, 2, 3});
  EXPECT_EQ(summary.count, 5u);
  EXPECT_DOUBLE_EQ(summary.mean, 3);
  EXPECT_DOUBLE_EQ(summary.p50, 3);
  EXPECT_DOUBLE_EQ(summary.p90, 4.6);
  EXPECT_DOUBLE_EQ(summary.p99, 4.96);
  EXPECT_DOUBLE_EQ(summary.min, 1);
  EXPECT_DOUBLE_EQ(summary.max, 5);
}

TEST(Statistics, NothingCountedIsNullAndNotZero) {
  const nlohmann::json json = to_json(summarize({}));
  EXPECT_EQ(json["count"], 0);
  EXPECT_TRUE(json["mean"].is_null());
  EXPECT_TRUE(json["p99"].is_null());
}

TEST(Statistics, SevenPairsSpanTheirExtremes) {
  const RatioInterval interval = ratios({1.3, 1.1, 1.7, 1.2, 1.6, 1.4, 1.5});
  EXPECT_EQ(interval.method, IntervalMethod::kOrderStatistic);
  EXPECT_NEAR(interval.ratio, 1.4, 1e-12);
  EXPECT_NEAR(*interval.low, 1.1, 1e-12);
  EXPECT_NEAR(*interval.high, 1.7, 1e-12);
  EXPECT_NEAR(interval.coverage, 1 - 2.0 / 128, 1e-12);
}

TEST(Statistics, TwentyPairsLeaveFiveOutOnEachSide) {
  // P(Binomial(20, 1/2) <= 5) = 21700 / 2^20.
  std::vector<double> values;
  for (int i = 1; i <= 20; ++i) values.push_back(i);
  const RatioInterval interval = ratios(values);
  EXPECT_NEAR(*interval.low, 6, 1e-9);
  EXPECT_NEAR(*interval.high, 15, 1e-9);
  EXPECT_NEAR(interval.coverage, 1 - 2 * 21700.0 / 1048576, 1e-12);
}

TEST(Statistics, SixPairsCoverJustEnough) {
  const RatioInterval interval = ratios({1, 2, 3, 4, 5, 6});
  EXPECT_NEAR(interval.coverage, 1 - 2.0 / 64, 1e-12);
  EXPECT_NEAR(*interval.low, 1, 1e-12);
  EXPECT_NEAR(interval.ratio, std::sqrt(12.0), 1e-9) << "in the logarithm";
}

TEST(Statistics, FewPairsUseStudentsT) {
  const RatioInterval interval = ratios({1.0, std::exp(0.2)});
  EXPECT_EQ(interval.method, IntervalMethod::kStudentT);
  EXPECT_NEAR(interval.ratio, std::exp(0.1), 1e-12);
  EXPECT_NEAR(std::log(*interval.low), 0.1 - 12.7062 * 0.1, 1e-6);
}

TEST(Statistics, OnePairHasNoIntervalAndPassesNoBar) {
  const RatioInterval interval = ratios({3.0});
  EXPECT_DOUBLE_EQ(interval.ratio, 3.0);
  EXPECT_FALSE(interval.low);
  EXPECT_FALSE(passes_bar(interval, 1.0));
}

TEST(Statistics, BarsAreJudgedByTheLowerEnd) {
  const RatioInterval interval = ratios({1.3, 1.1, 1.7, 1.2, 1.6, 1.4, 1.5});
  EXPECT_TRUE(passes_bar(interval, 1.09));
  EXPECT_FALSE(passes_bar(interval, 1.2));
}

TEST(Statistics, PairsThatAreNoNumbersAreRefused) {
  const std::vector<double> good = {1, 2}, zero = {1, 0}, one = {1}, none;
  EXPECT_FALSE(paired_ratio(good, zero));
  EXPECT_FALSE(paired_ratio(zero, good));
  EXPECT_FALSE(paired_ratio(good, one));
  EXPECT_FALSE(paired_ratio(none, none));
}

TEST(Statistics, ARatioStandsBesideItsCeiling) {
  Comparison comparison;
  comparison.measure = "step_read_s.mean";
  comparison.side = "completion";
  comparison.rival = "serial";
  comparison.ratio = ratios({1.3, 1.1, 1.7, 1.2, 1.6, 1.4, 1.5});
  EXPECT_TRUE(to_json(comparison)["ceiling"].is_null());
  comparison.ceiling = 1.5;
  comparison.ceiling_formula = "(b1 + b2) / b1";
  const nlohmann::json json = to_json(comparison);
  EXPECT_NEAR(json["share_of_ceiling"], 1.4 / 1.5, 1e-12);
  EXPECT_NEAR(json["share_of_ceiling_low"], 1.1 / 1.5, 1e-12);
  EXPECT_EQ(json["interval_method"], "order_statistics_of_median");
}

}  // namespace
}  // namespace kvstream
