#include "kvstream/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace kvstream {
namespace {

TEST(SteadyClock, NeverRunsBackwards) {
  const SteadyClock& clock = SteadyClock::instance();
  Nanos last = clock.now();
  for (int i = 0; i < 10'000; ++i) {
    const Nanos now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SteadyClock, ReadsTheClockThatTheStandardLibraryWaitsBy) {
  const auto before = std::chrono::steady_clock::now().time_since_epoch();
  const Nanos now = SteadyClock::instance().now();
  const auto after = std::chrono::steady_clock::now().time_since_epoch();
  EXPECT_GE(now, std::chrono::nanoseconds(before).count());
  EXPECT_LE(now, std::chrono::nanoseconds(after).count());
}

TEST(FakeClock, StandsStillUntilItIsMoved) {
  FakeClock clock;
  clock.set(5 * kSecond);
  EXPECT_EQ(clock.now(), 5 * kSecond);
  EXPECT_EQ(clock.now(), 5 * kSecond);
  clock.advance(kMillisecond);
  EXPECT_EQ(clock.now(), 5 * kSecond + kMillisecond);
}

}  // namespace
}  // namespace kvstream
