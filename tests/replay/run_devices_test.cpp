#include "replay/run_devices.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/checksum.hpp"
#include "ranks/solo_group.hpp"
#include "tiers/host_tier.hpp"
#include "tiers/throttled_tier.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kBlock = 64U << 10U;
constexpr std::uint64_t kFast = 400'000'000, kSlow = 200'000'000;

ReplayTier throttled(const std::string& name, std::uint64_t read_bytes_per_s) {
  ReplayTier tier;
  tier.spec.name = name;
  tier.spec.kind = "host";
  tier.spec.throttle.read_bytes_per_s = read_bytes_per_s;
  tier.visibility = Visibility::kJob;
  return tier;
}

/// A probe over memory whose limiter really gives `rate_bytes_per_s`.
Result<RateProbe> memory_probe(std::uint64_t rate_bytes_per_s) {
  auto host = HostTier::open({"probe", "memory", 64 * kBlock, kBlock, -1});
  if (!host) return failure(host.error());
  RateProbe probe;
  probe.in_flight = 8;
  const std::vector<std::byte> bytes(kBlock);
  for (std::uint64_t i = 0; i < 16; ++i) {
    auto slot = (*host)->reserve(kBlock);
    if (!slot) return failure(slot.error());
    WriteOp op;
    op.id = i;
    op.key.bytes[0] = static_cast<std::uint8_t>(i);
    op.at = *slot;
    op.size_bytes = kBlock;
    op.checksum = checksum({bytes.data(), kBlock});
    op.from = bytes.data();
    Completion done;
    if ((*host)->submit_writes({&op, 1}) != 1 || (*host)->poll({&done, 1}) != 1) {
      return failure(Code::kIoError, "the memory took no block");
    }
    probe.slots.push_back({*slot, kBlock});
  }
  ThrottleSpec spec;
  spec.read_bytes_per_s = rate_bytes_per_s;
  auto control = ThrottleControl::open("", spec);
  if (!control) return failure(control.error());
  probe.tier = std::make_unique<ThrottledTier>(std::move(*host), *control, SteadyClock::instance());
  return probe;
}

class RunDevicesTest : public testing::Test {
 protected:
  static CalibrationOptions quick() {
    CalibrationOptions options;
    options.discard_ns = 50 * kMillisecond;
    options.measure_ns = 200 * kMillisecond;
    return options;
  }
  RunDevices measured(OpenProbe probe, Calibrate calibrate = Calibrate::kOn) {
    auto devices = RunDevices::open(group_, {throttled("a", kFast), throttled("b", kSlow)}, 1,
                                    std::move(probe));
    EXPECT_TRUE(devices) << devices.error().message();
    const Status status = devices->measure(group_, calibrate, quick());
    EXPECT_TRUE(status.is_ok()) << status.message();
    return std::move(*devices);
  }
  SoloGroup group_{"node"};
};

TEST_F(RunDevicesTest, ThrottlesThatGiveTheirRatesLeaveNoMarkAndGiveJointRates) {
  const RunDevices devices =
      measured([](std::size_t tier) { return memory_probe(tier == 0 ? kFast : kSlow); });
  EXPECT_TRUE(devices.marks().empty()) << devices.marks().front();
  const auto speeds = devices.speeds();
  EXPECT_DOUBLE_EQ(speeds[0].rate_bytes_per_s, kFast);
  EXPECT_NEAR(speeds[0].joint_rate_bytes_per_s, kFast, 0.05 * kFast);
  EXPECT_NEAR(speeds[1].joint_rate_bytes_per_s, kSlow, 0.05 * kSlow);
  EXPECT_LE(speeds[1].joint_rate_bytes_per_s, kSlow);
  for (const auto& speed : speeds) {
    EXPECT_GT(speed.joint_rate_bytes_per_s, 0) << speed.device_id << ": T*_joint would be null";
  }
  const auto json = devices.to_json(1).at("throttled");
  EXPECT_TRUE(json.at(0).at("agrees").get<bool>());
  EXPECT_GT(json.at(1).at("joint_bytes_per_s").get<double>(), 0);
}

TEST_F(RunDevicesTest, AThrottleThatGivesLessThanItsRateIsMarked) {
  const RunDevices devices =
      measured([](std::size_t tier) { return memory_probe(tier == 0 ? kFast : kSlow * 9 / 10); });
  ASSERT_EQ(devices.marks().size(), 1u);
  EXPECT_NE(devices.marks()[0].find("device b"), std::string::npos) << devices.marks()[0];
  EXPECT_FALSE(devices.to_json(1).at("throttled").at(1).at("agrees").get<bool>());
  EXPECT_DOUBLE_EQ(devices.speeds()[1].rate_bytes_per_s, kSlow) << "the bound keeps the rate asked";
}

TEST_F(RunDevicesTest, AThrottleThatCannotBeCheckedSaysWhyAndEndsNothing) {
  const RunDevices devices = measured([](std::size_t tier) -> Result<RateProbe> {
    if (tier == 0) return memory_probe(kFast);
    return failure(Code::kNoSpace, "the disk is full");
  });
  ASSERT_EQ(devices.marks().size(), 1u);
  EXPECT_NE(devices.marks()[0].find("the disk is full"), std::string::npos) << devices.marks()[0];
  EXPECT_TRUE(devices.to_json(1).at("throttled").at(1).at("agrees").is_null());
  EXPECT_EQ(devices.speeds()[1].joint_rate_bytes_per_s, 0);
}

TEST_F(RunDevicesTest, NothingIsCheckedWithoutCalibration) {
  int asked = 0;
  const RunDevices devices = measured(
      [&](std::size_t) {
        ++asked;
        return memory_probe(kFast);
      },
      Calibrate::kOff);
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(devices.marks().empty());
  EXPECT_TRUE(devices.all_known());
}

}  // namespace
}  // namespace kvstream
