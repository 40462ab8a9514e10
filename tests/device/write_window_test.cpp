#include "device/write_window.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "device/device.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kBlock = 1 << 20;

/// Keeps the window full for `blocks` writes on a device of a fixed rate and latency.
std::uint64_t run(WriteWindow& window, double bytes_per_ns, Nanos latency, int blocks) {
  std::deque<std::pair<Nanos, Nanos>> out;  // submitted, done
  Nanos now = 0, free_at = 0;
  for (int done = 0; done < blocks;) {
    while (window.has_room()) {
      window.on_submit(kBlock, now);
      free_at = std::max(free_at, now) + static_cast<Nanos>(kBlock / bytes_per_ns);
      out.emplace_back(now, free_at + latency);
    }
    now = out.front().second;
    window.on_complete(kBlock, out.front().first, true, now);
    out.pop_front();
    ++done;
  }
  return window.window_bytes();
}

TEST(WriteWindow, StaysSmallOnADeviceWithoutLatency) {
  WriteWindow window(kBlock);
  EXPECT_LE(run(window, 0.4, 0, 200), 4ULL * kBlock);
}

TEST(WriteWindow, GrowsToWhatADistantDeviceNeeds) {
  WriteWindow window(kBlock);
  // 1 GB/s at 32 ms: 32 MB are under way at any time.
  EXPECT_GE(run(window, 1.0, 32 * kMillisecond, 2000), 32'000'000U);
}

TEST(WriteWindow, DoublesAtMostOnceARound) {
  WriteWindow window(kBlock);
  const auto after_one_round = run(window, 1.0, 32 * kMillisecond, 2);
  EXPECT_LE(after_one_round, 4ULL * kBlock);
}

TEST(WriteWindow, HasRoomForTwoBlocksAlsoAfterSmallerOnes) {
  WriteWindow window(kBlock);
  Nanos now = 0;
  // A device without latency: rounds of half blocks leave a window of two of those.
  for (int i = 0; i < 400; ++i) {
    while (window.has_room()) window.on_submit(kBlock / 2, now);
    window.on_complete(kBlock / 2, now, true, now + kMillisecond);
    now += kMillisecond;
  }
  for (; window.bytes_in_flight() > 0; ++now) window.on_complete(kBlock / 2, now, true, now + 1);
  ASSERT_LT(window.window_bytes(), 2ULL * kBlock);
  for (int i = 0; i < 40; ++i) {
    window.on_submit(kBlock, now);
    EXPECT_TRUE(window.has_room()) << "one block keeps the second out, after " << i;
    window.on_complete(kBlock, now, true, now + 1);
    now += 2;
  }
}

TEST(WriteWindow, ABlockLargerThanMostLeavesRoomForASecond) {
  WriteWindow window(kBlock);
  Nanos now = 0;
  for (int i = 0; i < 200; ++i) {  // every fourth block is a prompt's last, and half as large
    window.on_submit(i % 4 == 3 ? kBlock / 2 : kBlock, now);
    window.on_complete(i % 4 == 3 ? kBlock / 2 : kBlock, now, true, now + kMillisecond);
    now += 2 * kMillisecond;
  }
  window.on_submit(kBlock, now);
  EXPECT_TRUE(window.has_room());
  window.on_submit(kBlock, now);
  EXPECT_FALSE(window.has_room());
}

TEST(WriteWindow, RateIsThatOfBusyTime) {
  WriteWindow window(kBlock);
  EXPECT_EQ(window.rate_bytes_per_ns(), 0);
  Nanos now = 0;
  for (int i = 0; i < 50; ++i) {
    window.on_submit(kBlock, now);
    window.on_complete(kBlock, now, true, now + 2 * kMillisecond);
    now += 100 * kMillisecond;  // idle most of the time
  }
  EXPECT_NEAR(window.rate_bytes_per_ns(), kBlock / 2e6, 1e-6);
}

TEST(WriteWindow, FailedWritesTeachNothing) {
  WriteWindow window(kBlock);
  for (int i = 0; i < 100; ++i) {
    window.on_submit(kBlock, i);
    window.on_complete(kBlock, i, false, i + 1);
  }
  EXPECT_EQ(window.window_bytes(), 2ULL * kBlock);
  EXPECT_EQ(window.bytes_in_flight(), 0U);
}

TEST(Device, WritesInFlightLeaveTwoPlacesForReads) {
  Device device({"d", kBlock, 1e9, kMillisecond, 64});
  for (int i = 0; i < 8; ++i) device.on_submit(Device::Kind::kWrite, kBlock, 0);
  EXPECT_GE(device.free_places(), 2U);
  device.on_submit(Device::Kind::kRead, kBlock, 0);
  device.on_submit(Device::Kind::kRead, kBlock, 0);
  EXPECT_EQ(device.free_write_places(), 0U);
}

}  // namespace
}  // namespace kvstream
