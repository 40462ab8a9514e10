#include "replay/ceiling.hpp"

#include <gtest/gtest.h>

namespace kvstream {
namespace {

TEST(Ceiling, ReadsGainTheSumOverTheFirst) {
  const std::vector<double> rates = {500e6, 250e6};
  EXPECT_DOUBLE_EQ(read_time_ceiling(rates), 1.5);
  EXPECT_EQ(read_time_ceiling({}), 0);
}

// By hand, b = 500 and 250, w = 400 and 200 MB/s, s_r = 0.4, s_w = 0.2:
// A = 1 - 0.4 - 0.2 + 0.4 x 500/750 = 0.66667;
// D(all) = (0.4 x 500 + 0.2 x 1 x 500 + 0.2 x 2 x 250) / 750 = 400/750 = 0.53333;
// D(one) = (0.4 x 500 + 0.2 x 500) / 750 = 0.4; D(none) = 200/750.
const std::vector<TierRates> kTiers = {{500e6, 400e6}, {250e6, 200e6}};

TEST(Ceiling, ComputeAndReadsBoundThroughputWhereDevicesHaveTimeLeft) {
  const ThroughputCeiling all = throughput_ceiling(kTiers, {0.4, 0.2, 0}, Replication::kAll);
  EXPECT_NEAR(all.a, 2.0 / 3, 1e-12);
  EXPECT_NEAR(all.d, 400.0 / 750, 1e-12);
  EXPECT_NEAR(all.ceiling, 1.5, 1e-12);
  EXPECT_NEAR(throughput_ceiling(kTiers, {0.4, 0.2, 0}, Replication::kOne).d, 0.4, 1e-12);
  EXPECT_NEAR(throughput_ceiling(kTiers, {0.4, 0.2, 0}, Replication::kNone).d, 200.0 / 750, 1e-12);
}

// s_r = 0.3, s_w = 0.6: A = 0.1 + 0.2 = 0.3; D(all) = (150 + 300 + 300) / 750 = 1.
TEST(Ceiling, WritesToEveryTierBoundThroughputWhereTheyAreMost) {
  const ThroughputCeiling all = throughput_ceiling(kTiers, {0.3, 0.6, 0}, Replication::kAll);
  EXPECT_NEAR(all.a, 0.3, 1e-12);
  EXPECT_NEAR(all.d, 1.0, 1e-12);
  EXPECT_NEAR(all.ceiling, 1.0, 1e-12);
  const ThroughputCeiling one = throughput_ceiling(kTiers, {0.3, 0.6, 0}, Replication::kOne);
  EXPECT_NEAR(one.d, 0.6, 1e-12);
  EXPECT_NEAR(one.ceiling, 1 / 0.6, 1e-12);
}

TEST(Ceiling, ARivalOnTheSecondTierReadsAtItsRate) {
  const ThroughputCeiling result = throughput_ceiling(kTiers, {0.9, 0, 1}, Replication::kOne);
  EXPECT_NEAR(result.a, 0.1 + 0.9 * 250 / 750, 1e-12);
  EXPECT_NEAR(result.ceiling, 2.5, 1e-12);
}

TEST(Ceiling, UnknownTiersHaveNone) {
  EXPECT_EQ(throughput_ceiling({}, {0.5, 0, 0}, Replication::kOne).ceiling, 0);
}

}  // namespace
}  // namespace kvstream
