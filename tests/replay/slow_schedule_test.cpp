#include "replay/slow_schedule.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace kvstream {
namespace {

TEST(ParseSlow, ReadsTierTimeAndFactor) {
  const auto slow = parse_slow("pfs@0.1=1/10");
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->tier, "pfs");
  EXPECT_EQ(slow->at_ns, 100 * kMillisecond);
  EXPECT_DOUBLE_EQ(slow->factor, 0.1);
}

TEST(ParseSlow, SaysWhatFormItWants) {
  for (const char* text : {"", "pfs", "pfs@1", "@1=2", "pfs=2", "pfs@x=2", "pfs@1=0"}) {
    const auto slow = parse_slow(text);
    ASSERT_FALSE(slow) << text;
    EXPECT_NE(slow.error().message().find("TIER@SECONDS=FACTOR"), std::string::npos);
  }
}

TEST(SlowSchedule, ChangesTheSpeedAndPutsItBackAtTheEnd) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<double> factors;
  const auto set = [&](const std::string&, double factor) {
    const std::lock_guard lock(mutex);
    factors.push_back(factor);
    changed.notify_all();
  };
  {
    SlowSchedule slow({{"pfs", kMillisecond, 0.1}}, set, SteadyClock::instance(),
                      SteadyClock::instance().now());
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return !factors.empty(); }));
  }
  EXPECT_EQ(factors, (std::vector<double>{0.1, 1.0}));
}

TEST(SlowSchedule, EndsBeforeItsTimeWhenTheRunDoes) {
  std::atomic<int> calls{0};
  {
    SlowSchedule slow(
        {{"pfs", 3600 * kSecond, 0.1}},
        [&](const std::string&, double factor) {
          EXPECT_EQ(factor, 1.0);
          ++calls;
        },
        SteadyClock::instance(), SteadyClock::instance().now());
  }
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace kvstream
