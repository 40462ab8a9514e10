#include "device/device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <vector>

namespace kvstream {
namespace {

constexpr std::uint32_t kBytes = 1U << 20U;

Device::Options options_of(double bytes_per_s, Nanos latency) {
  Device::Options options;
  options.block_bytes = kBytes;
  options.prior_rate_bytes_per_s = bytes_per_s;
  options.prior_latency_ns = latency + static_cast<Nanos>(kBytes / bytes_per_s * 1e9);
  options.in_flight_max = 4096;
  return options;
}

/// A drive of one queue that several devices (of several ranks) may drive.
struct Drive {
  double bytes_per_s;
  Nanos latency;
  Nanos free_at = 0;
  Nanos serve(Nanos now) {
    free_at = std::max(free_at, now) + static_cast<Nanos>(kBytes / bytes_per_s * 1e9);
    return free_at + latency;
  }
};

struct User {
  explicit User(const Device::Options& options) : device(options) {}
  Device device;
  struct Op {
    Nanos at, submitted;
  };
  std::deque<Op> ops;
  std::uint64_t done = 0;
  void fill(Drive& drive, Nanos now) {
    while (device.free_places() > 0) {
      device.on_submit(Device::Kind::kRead, kBytes, now);
      ops.push_back({drive.serve(now), now});
    }
    device.set_demand(true);
  }
  void complete(Nanos now) {
    while (!ops.empty() && ops.front().at <= now) {
      device.on_complete(Device::Kind::kRead, kBytes, ops.front().submitted, true, now);
      ops.pop_front();
      ++done;
    }
  }
};

/// All users keep the drive busy until `end`.
void run(Drive& drive, std::vector<User*> users, Nanos& now, Nanos end) {
  while (now < end) {
    for (User* user : users) user->fill(drive, now);
    Nanos next = kNever;
    for (User* user : users)
      if (!user->ops.empty()) next = std::min(next, user->ops.front().at);
    now = next;
    for (User* user : users) user->complete(now);
  }
}

TEST(Device, BeginsWithTwoBlocksAndWhatItWasTold) {
  const Device device(options_of(5e8, kMillisecond));
  EXPECT_EQ(device.free_places(), 2U);
  EXPECT_DOUBLE_EQ(device.rate_bytes_per_ns(), 0.5);
  EXPECT_NEAR(static_cast<double>(device.access_latency_ns()), 1e6, 10);
}

TEST(Device, MeasuresTheRateWithoutTheLatencyOfTheStart) {
  Drive drive{2e9, 32 * kMillisecond};
  User user(options_of(1e8, 32 * kMillisecond));
  Nanos now = 0;
  run(drive, {&user}, now, kSecond);
  EXPECT_NEAR(user.device.rate_bytes_per_ns(), 2, 0.1);
}

TEST(Device, ForgetsAnOldRateWithinAQuarterSecondOfWork) {
  Drive drive{1e9, 0};
  User user(options_of(1e9, 0));
  Nanos now = 0;
  run(drive, {&user}, now, kSecond);
  drive.bytes_per_s = 1e8;
  run(drive, {&user}, now, now + 330 * kMillisecond);
  EXPECT_NEAR(user.device.rate_bytes_per_ns(), 0.1, 0.03);
}

TEST(Device, DecaysWhileWorkIsInFlightAndNothingCompletes) {
  Drive drive{1e9, 0};
  User user(options_of(1e9, 0));
  Nanos now = 0;
  run(drive, {&user}, now, kSecond);
  user.fill(drive, now);
  user.device.tick(now + kSecond);
  EXPECT_LT(user.device.rate_bytes_per_ns(), 0.01);
  EXPECT_NEAR(user.device.best_rate_bytes_per_ns(), 1, 0.05) << "the undecayed rate stays";
}

TEST(Device, DoesNotDecayWhenIdle) {
  Device device(options_of(1e9, 0));
  device.tick(100 * kSecond);
  EXPECT_DOUBLE_EQ(device.rate_bytes_per_ns(), 1);
}

TEST(Device, TakesTheLatencyFromLoneReadsOnly) {
  Device device(options_of(1e9, 10 * kMillisecond));
  const Nanos before = device.lone_latency_ns();
  device.on_submit(Device::Kind::kRead, kBytes, 0);
  device.on_submit(Device::Kind::kRead, kBytes, 0);
  device.on_complete(Device::Kind::kRead, kBytes, 0, true, 2 * kMillisecond);
  device.on_complete(Device::Kind::kRead, kBytes, 0, true, 3 * kMillisecond);
  EXPECT_EQ(device.lone_latency_ns(), before);
  device.on_submit(Device::Kind::kWrite, kBytes, 0);
  device.on_submit(Device::Kind::kRead, kBytes, 0);
  device.on_complete(Device::Kind::kRead, kBytes, 0, true, 4 * kMillisecond);
  device.on_complete(Device::Kind::kWrite, kBytes, 0, true, 4 * kMillisecond);
  EXPECT_EQ(device.lone_latency_ns(), before);
  device.on_submit(Device::Kind::kRead, kBytes, kSecond);
  device.on_complete(Device::Kind::kRead, kBytes, kSecond, true, kSecond + 2 * kMillisecond);
  EXPECT_EQ(device.lone_latency_ns(), 2 * kMillisecond);
}

TEST(Device, WindowIsTwiceRateTimesLoneLatency) {
  for (const auto& [rate, latency] :
       {std::pair{2e9, 32 * kMillisecond}, {7e9, 12 * kMillisecond}, {5e8, kMillisecond / 10}}) {
    Drive drive{rate, latency};
    User user(options_of(rate, latency));
    Nanos now = 0;
    run(drive, {&user}, now, 2 * kSecond);
    const double wanted =
        std::max(2.0 * kBytes, 2 * rate / 1e9 * static_cast<double>(user.device.lone_latency_ns()));
    EXPECT_NEAR(static_cast<double>(user.device.window_bytes()) / wanted, 1, 0.1) << rate;
  }
}

TEST(Device, WindowDoublesPerRoundAtFirst) {
  Drive drive{2e9, 32 * kMillisecond};
  User user(options_of(2e9, 32 * kMillisecond));
  Nanos now = 0;
  run(drive, {&user}, now, 230 * kMillisecond);
  EXPECT_GE(user.device.window_bytes(), 64ULL * kBytes);
  User fresh(options_of(2e9, 32 * kMillisecond));
  Drive other{2e9, 32 * kMillisecond};
  now = 0;
  std::uint64_t last = fresh.device.window_bytes();
  while (now < kSecond) {
    run(other, {&fresh}, now, now + 1);
    EXPECT_LE(fresh.device.window_bytes(), 2 * last);
    last = fresh.device.window_bytes();
  }
}

TEST(Device, RoundsWithoutWaitingWorkDoNotCount) {
  Drive drive{2e9, 32 * kMillisecond};
  User user(options_of(2e9, 32 * kMillisecond));
  Nanos now = 0;
  run(drive, {&user}, now, kSecond);
  const std::uint64_t window = user.device.window_bytes();
  user.complete(now + kSecond);
  now += kSecond;
  for (int i = 0; i < 2000; ++i) {  // one block at a time, as a thin step asks
    user.device.on_submit(Device::Kind::kRead, kBytes, now);
    user.device.set_demand(false);
    const Nanos end = drive.serve(now);
    user.device.on_complete(Device::Kind::kRead, kBytes, now, true, end);
    now = end;
  }
  EXPECT_EQ(user.device.window_bytes(), window);
}

TEST(Device, SharersOfADriveEndUpWithEqualWindowsThatAddUpToOne) {
  Drive drive{2e9, 32 * kMillisecond};
  std::vector<User> users(4, User(options_of(2e9, 32 * kMillisecond)));
  Nanos now = 0;
  run(drive, {&users[0]}, now, kSecond);  // the first has the drive to itself, then others come
  for (User& user : users) user.device.set_sharers(4);
  run(drive, {&users[0], &users[1], &users[2], &users[3]}, now, 20 * kSecond);
  double sum = 0, squares = 0, total = 0;
  for (User& user : users) user.done = 0;
  run(drive, {&users[0], &users[1], &users[2], &users[3]}, now, now + 5 * kSecond);
  for (User& user : users) {
    const auto done = static_cast<double>(user.done);
    sum += done;
    squares += done * done;
    total += static_cast<double>(user.device.window_bytes());
  }
  EXPECT_GE(sum * sum / (4 * squares), 0.95);
  const double bandwidth_delay = 2.0 * 32.5e6;
  EXPECT_LE(total / bandwidth_delay, 2.5);
  EXPECT_GE(total / bandwidth_delay, 1);
}

TEST(Device, BoundsItsOperations) {
  Device::Options options = options_of(1e9, kSecond);
  options.in_flight_max = 1;
  Device device(options);
  EXPECT_EQ(device.free_places(), 1U);
  device.on_submit(Device::Kind::kRead, kBytes, 0);
  EXPECT_EQ(device.free_places(), 0U);
}

TEST(Device, WritesNeedCreditOnlyWhileReadsWait) {
  Device device(options_of(1e9, 0));
  EXPECT_TRUE(device.write_credit_covers(kBytes));
  device.set_demand(true);
  EXPECT_FALSE(device.write_credit_covers(kBytes));
  for (int i = 0; i < 8; ++i) device.earn_write_credit(kBytes, 0.1);
  EXPECT_FALSE(device.write_credit_covers(kBytes));
  device.earn_write_credit(kBytes, 0.1);
  EXPECT_TRUE(device.write_credit_covers(kBytes)) << "a tenth: one written for nine read";
  device.spend_write_credit(kBytes);
  EXPECT_FALSE(device.write_credit_covers(kBytes));
}

TEST(Device, WriteCreditIsBounded) {
  Device device(options_of(1e9, 0));
  device.set_demand(true);
  for (int i = 0; i < 10'000; ++i) device.earn_write_credit(kBytes, 0.1);
  EXPECT_TRUE(device.write_credit_covers(4 * kBytes));
  EXPECT_FALSE(device.write_credit_covers(4 * kBytes + 1));
}

TEST(Device, FailedReadsDoNotRaiseTheRate) {
  Drive drive{1e9, 0};
  User user(options_of(1e9, 0));
  Nanos now = 0;
  run(drive, {&user}, now, kSecond);
  user.complete(now + kSecond);
  now += kSecond;
  for (int i = 0; i < 1000; ++i) {
    user.device.on_submit(Device::Kind::kRead, kBytes, now);
    user.device.on_complete(Device::Kind::kRead, kBytes, now, false, now + 10);
    now += 10;
  }
  EXPECT_LE(user.device.rate_bytes_per_ns(), 1.01);
}

}  // namespace
}  // namespace kvstream
