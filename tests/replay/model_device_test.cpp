#include "replay/model_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "replay/random.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kBlock = 1'000'000;  // 1 ms at kRate
constexpr double kRate = 1e9;
constexpr Nanos kBlockTime = kMillisecond;

DeviceModel model_of(Nanos latency = 0) {
  DeviceModel model;
  model.read_bytes_per_s = kRate;
  model.write_bytes_per_s = kRate / 2;
  model.read_latency_ns = model.write_latency_ns = latency;
  return model;
}

Nanos read(ModelDevice& device, Nanos now, std::uint64_t bytes = kBlock) {
  return device.submit(Transfer::kRead, bytes, now);
}
Nanos write(ModelDevice& device, Nanos now, std::uint64_t bytes = kBlock) {
  return device.submit(Transfer::kWrite, bytes, now);
}

TEST(ModelDevice, ALoneAccessTakesItsLatencyAndItsTransferAtTheRateOfItsDirection) {
  ModelDevice device("d", model_of(100 * kMicrosecond));
  EXPECT_EQ(read(device, kSecond), kSecond + 100 * kMicrosecond + kBlockTime);
  EXPECT_EQ(write(device, 2 * kSecond), 2 * kSecond + 100 * kMicrosecond + 2 * kBlockTime);
}

TEST(ModelDevice, ARateOfZeroTakesOnlyTheLatency) {
  DeviceModel model;
  model.read_latency_ns = 5;
  ModelDevice device("d", model);
  EXPECT_EQ(read(device, 100), 105);
  EXPECT_EQ(write(device, 100), 100);
}

TEST(ModelDevice, AccessesOfOneDirectionEndInTheirOrderAtTheRateAndShareOneLatency) {
  ModelDevice device("d", model_of(3 * kBlockTime));
  for (Nanos i = 1; i <= 50; ++i) {
    EXPECT_EQ(read(device, kSecond), kSecond + 3 * kBlockTime + i * kBlockTime);
  }
}

TEST(ModelDevice, TheTwoDirectionsKnowNothingOfEachOtherWithoutDisturbance) {
  ModelDevice device("d", model_of());
  for (int i = 0; i < 100; ++i) write(device, kSecond);
  EXPECT_EQ(read(device, kSecond), kSecond + kBlockTime);
}

TEST(ModelDevice, NoMoreThanItsConcurrencyIsServedAtATime) {
  DeviceModel model = model_of(10 * kBlockTime);
  model.concurrency = 2;
  ModelDevice device("d", model);
  EXPECT_EQ(read(device, kSecond), kSecond + 11 * kBlockTime);
  EXPECT_EQ(read(device, kSecond), kSecond + 12 * kBlockTime);
  // The third and fourth get the places of the first and second, and only then their latency.
  EXPECT_EQ(read(device, kSecond), kSecond + 22 * kBlockTime);
  EXPECT_EQ(write(device, kSecond), kSecond + 24 * kBlockTime);
  // Long after, the places are free again.
  EXPECT_EQ(read(device, 2 * kSecond), 2 * kSecond + 11 * kBlockTime);
}

TEST(ModelDevice, AGapLetsNoMoreThanTheBurstThroughAtOnce) {
  DeviceModel model = model_of();
  model.burst_ns = 2 * kBlockTime;
  ModelDevice device("d", model);
  EXPECT_EQ(read(device, kSecond), kSecond);
  EXPECT_EQ(read(device, kSecond), kSecond);
  EXPECT_EQ(read(device, kSecond), kSecond + kBlockTime);
  EXPECT_EQ(read(device, kSecond), kSecond + 2 * kBlockTime);
  // A second later the burst is whole again, and not larger.
  EXPECT_EQ(read(device, 2 * kSecond, 3 * kBlock), 2 * kSecond + kBlockTime);
}

TEST(ModelDevice, ABurstHidesTheTransferBehindTheLatencyButNotTheLatency) {
  DeviceModel model = model_of(kBlockTime / 2);
  model.burst_ns = 2 * kBlockTime;
  ModelDevice device("d", model);
  EXPECT_EQ(read(device, kSecond), kSecond + kBlockTime / 2);
}

TEST(ModelDevice, AWriteTakesItsPartOfItsTransferFromTheReads) {
  DeviceModel model = model_of();
  model.disturbance = 0.25;
  ModelDevice device("d", model);
  EXPECT_EQ(write(device, kSecond), kSecond + 2 * kBlockTime);
  EXPECT_EQ(read(device, kSecond), kSecond + kBlockTime / 2 + kBlockTime);
}

TEST(ModelDevice, WritesFarBackInTheQueueDoNotHoldUpAReadUntilTheirTurnComes) {
  DeviceModel model = model_of();
  model.disturbance = 0.1;
  ModelDevice device("d", model);
  for (int i = 0; i < 100; ++i) write(device, kSecond);
  // The last write begins 198 ms from now; the read pays 100 x 0.1 x 2 ms and no more.
  EXPECT_LE(read(device, kSecond), kSecond + 20 * kBlockTime + kBlockTime + 1);
}

TEST(ModelDevice, ADisturbanceOfOneIsOneChannelForBothDirections) {
  DeviceModel model = model_of();
  model.write_bytes_per_s = kRate;
  model.disturbance = 1;
  ModelDevice device("d", model);
  Nanos last = 0;
  for (int i = 0; i < 50; ++i) {
    last = std::max(last, read(device, kSecond));
    last = std::max(last, write(device, kSecond));
  }
  EXPECT_NEAR(static_cast<double>(last - kSecond), 100.0 * kBlockTime, 2);
}

TEST(ModelDevice, ASmallWriteDoesNotTakeTheReadsWholeBurst) {
  DeviceModel model = model_of();
  model.burst_ns = 2 * kBlockTime;
  model.disturbance = 0.5;
  ModelDevice device("d", model);
  write(device, kSecond, 1000);
  EXPECT_LT(read(device, kSecond), kSecond + kBlockTime / 2);
}

TEST(ModelDevice, AFactorSlowsWhatComesAfterItAndLeavesWhatHasBegun) {
  ModelDevice device("d", model_of());
  EXPECT_EQ(read(device, kSecond), kSecond + kBlockTime);
  device.set_factor(0.1);
  EXPECT_EQ(read(device, kSecond), kSecond + 11 * kBlockTime);
  device.set_factor(1);
  EXPECT_EQ(read(device, kSecond), kSecond + 12 * kBlockTime);
}

/// What has ended within any window is at most rate x window + burst (and the one block that was
/// under way when the window began).
TEST(ModelDevice, NoWindowOfAnySequenceGetsMoreThanRateTimesTimeAndTheBurst) {
  const int sequences = std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 2000 : 60;
  for (int seed = 1; seed <= sequences; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed));
    DeviceModel model;
    model.read_bytes_per_s = 1e8 * static_cast<double>(random.between(1, 50));
    model.write_bytes_per_s = 1e8 * static_cast<double>(random.between(1, 50));
    model.read_latency_ns = static_cast<Nanos>(random.between(0, 2'000'000));
    model.write_latency_ns = static_cast<Nanos>(random.between(0, 2'000'000));
    model.concurrency = static_cast<std::uint32_t>(random.between(0, 6));
    model.disturbance = random.unit() < 0.5 ? 0 : random.unit();
    model.burst_ns = random.unit() < 0.5 ? 0 : static_cast<Nanos>(random.between(0, 5'000'000));
    ModelDevice device("d", model);
    struct Done {
      Nanos at = 0;
      std::uint64_t bytes = 0;
    };
    std::vector<Done> done[2];
    std::vector<std::pair<Nanos, Nanos>> served;
    Nanos now = kSecond;
    for (int i = 0; i < 200; ++i) {
      if (random.unit() < 0.4) now += static_cast<Nanos>(random.exponential(3e6));
      const bool reads = random.unit() < 0.6;
      const std::uint64_t bytes = random.between(1, 2'000'000);
      const Nanos end = device.submit(reads ? Transfer::kRead : Transfer::kWrite, bytes, now);
      const Nanos latency = reads ? model.read_latency_ns : model.write_latency_ns;
      ASSERT_GE(end, now + latency);
      auto& list = done[reads ? 0 : 1];
      ASSERT_TRUE(list.empty() || list.back().at <= end) << "overtaken";
      list.push_back({end, bytes});
    }
    for (int direction = 0; direction < 2; ++direction) {
      const double rate =
          (direction == 0 ? model.read_bytes_per_s : model.write_bytes_per_s) * 1e-9;
      const auto& list = done[direction];
      for (std::size_t from = 0; from < list.size(); ++from) {
        double bytes = 0;
        for (std::size_t to = from + 1; to < list.size(); ++to) {
          bytes += static_cast<double>(list[to].bytes);
          const auto window = static_cast<double>(list[to].at - list[from].at);
          const double allowed = rate * (window + static_cast<double>(model.burst_ns) + 2);
          ASSERT_LE(bytes, allowed) << "direction " << direction << ", " << from << " to " << to;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvstream
