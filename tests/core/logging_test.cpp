#include "core/logging.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

namespace kvstream {
namespace {

using testing::HasSubstr;

class Logging : public testing::Test {
 protected:
  void SetUp() override { ::unsetenv("KVSTREAM_LOG"); }
  void TearDown() override {
    ::unsetenv("KVSTREAM_LOG");
    EXPECT_TRUE(setup_logging(0, "info").is_ok());
  }
};

TEST_F(Logging, CarriesRankLayerAndLevelInEveryLine) {
  ASSERT_TRUE(setup_logging(7, "info").is_ok());
  testing::internal::CaptureStderr();
  logger("tiers").warn("a segment is gone");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("[rank 7]"));
  EXPECT_THAT(line, HasSubstr("[tiers]"));
  EXPECT_THAT(line, HasSubstr("warn"));
  EXPECT_THAT(line, HasSubstr("a segment is gone"));
}

TEST_F(Logging, GivesALoggerMadeLaterTheRankToo) {
  ASSERT_TRUE(setup_logging(3, "info").is_ok());
  testing::internal::CaptureStderr();
  logger("made-later").error("x");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[rank 3]"));
}

TEST_F(Logging, SaysNothingBelowTheLevel) {
  ASSERT_TRUE(setup_logging(0, "error").is_ok());
  testing::internal::CaptureStderr();
  logger("tiers").warn("unheard");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Logging, LetsTheEnvironmentOverrideTheLevel) {
  ::setenv("KVSTREAM_LOG", "debug", 1);
  ASSERT_TRUE(setup_logging(0, "off").is_ok());
  EXPECT_TRUE(logger("tiers").should_log(spdlog::level::debug));
}

TEST_F(Logging, RefusesALevelThatItDoesNotKnow) {
  const Status status = setup_logging(0, "loud");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("debug"));
}

TEST(LogLimiter, AdmitsOneLineAnIntervalAndCountsTheRest) {
  LogLimiter limiter(kSecond);
  std::uint64_t suppressed = 99;
  EXPECT_TRUE(limiter.admit(10 * kSecond, suppressed));
  EXPECT_EQ(suppressed, 0U);
  EXPECT_FALSE(limiter.admit(10 * kSecond + 1, suppressed));
  EXPECT_FALSE(limiter.admit(11 * kSecond - 1, suppressed));
  EXPECT_TRUE(limiter.admit(11 * kSecond, suppressed));
  EXPECT_EQ(suppressed, 2U);
}

TEST(LogLimiter, LosesNoCountBetweenThreads) {
  LogLimiter limiter(kSecond);
  std::atomic<std::uint64_t> admitted{0}, counted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (Nanos now = kSecond; now < kSecond + 20'000; ++now) {
        std::uint64_t suppressed = 0;
        if (!limiter.admit(now * 100'000, suppressed)) continue;
        ++admitted;
        counted += suppressed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t suppressed = 0;
  ASSERT_TRUE(limiter.admit(kNever / 2, suppressed));
  EXPECT_EQ(admitted + counted + suppressed, 4U * 20'000U);
}

}  // namespace
}  // namespace kvstream
