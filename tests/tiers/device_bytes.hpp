// Whether what a tier reads comes from its device, each time, and no more than was asked.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "contract/tier_driver.hpp"
#include "engine/threaded_tier.hpp"
#include "tiers/own_device.hpp"

namespace kvstream::test {

struct DeviceBytesCase {
  std::string name;
  TierFactory make;
  std::string mode;  ///< part of what the tier must say of itself, or the wrong thing is tested
};

inline std::ostream& operator<<(std::ostream& out, const DeviceBytesCase& value) {
  return out << value.name;
}

/// One size of block on one tier.
class DeviceBytes : public testing::TestWithParam<std::tuple<DeviceBytesCase, std::uint32_t>> {
 protected:
  static constexpr std::uint64_t kDeviceBytes = 320ULL << 20U;
  static constexpr std::uint64_t kReadBytesMin = 32ULL << 20U;
  static constexpr std::uint64_t kCapBytes = 144ULL << 20U;

  void SetUp() override {
    auto device = OwnDevice::open(kDeviceBytes);
    if (!device) GTEST_SKIP() << "no device of its own here: " << device.error().message();
    device_ = std::move(*device);
    block_bytes_ = std::get<1>(GetParam());
    TierSpec spec;
    spec.name = "t0";
    spec.path = device_->path() + "/root";
    spec.cap_bytes = kCapBytes;
    TierContext context;
    context.namespace_fingerprint = 0xF00D;
    context.block_bytes_max = block_bytes_;
    context.clock = &SteadyClock::instance();
    auto made = std::get<0>(GetParam()).make(spec, context);
    ASSERT_TRUE(made) << made.error().message();
    if (auto* plain = std::get_if<std::unique_ptr<Tier>>(&*made)) {
      tier_ = std::move(*plain);
    } else {
      tier_ = ThreadedTier::open(std::move(std::get<std::unique_ptr<BlockingTier>>(*made)),
                                 *context.clock);
    }
    const std::string& mode = std::get<0>(GetParam()).mode;
    ASSERT_NE(tier_->report().mode.find(mode), std::string::npos) << tier_->report().mode;
  }

  /// Device bytes over bytes asked for one reading of all blocks, each checked.
  double read_all(TierDriver& driver, const std::vector<Written>& blocks) {
    const std::uint64_t before = device_->read_bytes();
    for (const Written& block : blocks) EXPECT_TRUE(driver.reads_back(block));
    const auto counted = static_cast<double>(device_->read_bytes() - before);
    return counted / (static_cast<double>(blocks.size()) * block_bytes_);
  }

  void expect_bytes_from_the_device() {
    TierDriver driver(*tier_);
    std::vector<Written> blocks;
    for (std::uint64_t i = 0; i * block_bytes_ < kReadBytesMin; ++i) {
      blocks.push_back(driver.write(i, block_bytes_));
    }
    for (const char* which : {"first", "second"}) {
      const double ratio = read_all(driver, blocks);
      RecordProperty(fmt::format("{}_device_bytes_per_byte_asked", which),
                     fmt::format("{:.4f}", ratio));
      fmt::print("device bytes / bytes asked, {} reading: {:.4f}\n", which, ratio);
      EXPECT_GE(ratio, 0.95) << which << " reading: bytes came from memory";
      EXPECT_LE(ratio, 1.05) << which << " reading: more was read than was asked";
    }
  }

  std::unique_ptr<OwnDevice> device_;
  std::uint32_t block_bytes_ = 0;
  std::unique_ptr<Tier> tier_;
};

inline std::string device_bytes_name(const testing::TestParamInfo<DeviceBytes::ParamType>& info) {
  return fmt::format("{}_{}KiB", std::get<0>(info.param).name, std::get<1>(info.param) >> 10U);
}

inline auto device_bytes_sizes() {
  return testing::Values(256U << 10U, 1U << 20U, 2U << 20U, 4U << 20U, 8U << 20U);
}

TEST_P(DeviceBytes, BlocksComeFromTheDeviceEachTimeAndNoMoreThanWasAsked) {
  expect_bytes_from_the_device();
}

}  // namespace kvstream::test
