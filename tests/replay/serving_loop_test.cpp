// Time, arrivals, answers and stops of the serving loop.
#include "replay/serving_loop.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "replay/serving_rig.hpp"

namespace kvstream {
namespace {

TEST_F(ServingLoopTest, TimesOfALoneRequestAreThoseThatAreReckonedByHand) {
  add(100, 3);
  mode_.no_cache = true;
  open();
  const RankRun run = play_out();
  // 100 prompt tokens, then two passes of one decoded token each.
  ASSERT_EQ(run.ttft_s.size(), 1U);
  ASSERT_EQ(run.tpot_s.size(), 1U);
  ASSERT_EQ(run.e2e_s.size(), 1U);
  EXPECT_NEAR(run.ttft_s[0], 0.1, 1e-9);
  EXPECT_NEAR(run.tpot_s[0], 0.1, 1e-9);
  EXPECT_NEAR(run.e2e_s[0], 0.3, 1e-9);
  EXPECT_NEAR(run.elapsed_s, 0.3, 1e-9);
  EXPECT_NEAR(run.forward_s, 0.3, 1e-9);
  EXPECT_EQ(run.steps, 3U);
  EXPECT_EQ(run.output_tokens, 3U);
  EXPECT_EQ(run.computed_tokens, 100U);
  EXPECT_EQ(run.requests, 1U);
}

TEST_F(ServingLoopTest, TheTimePerOutputTokenIsThatBehindTheFirstAndASingleOneHasNone) {
  options_.arrivals = Arrivals::kTrace;
  add(100, 1);
  add(200, 3, 50 * kMs);
  mode_.no_cache = true;
  open();
  const RankRun run = play_out();
  // 0-100 ms the first; 100-300 the second's prompt; 300-500 its two further tokens.
  ASSERT_EQ(run.ttft_s.size(), 2U);
  EXPECT_NEAR(run.ttft_s[0], 0.1, 1e-9);
  EXPECT_NEAR(run.ttft_s[1], 0.25, 1e-9);
  ASSERT_EQ(run.tpot_s.size(), 1U);
  EXPECT_NEAR(run.tpot_s[0], 0.1, 1e-9);
  ASSERT_EQ(run.e2e_s.size(), 2U);
  EXPECT_NEAR(run.e2e_s[1], 0.45, 1e-9);
}

TEST_F(ServingLoopTest, ForwardPassesAndArrivalsShrinkWithTheTimeScale) {
  options_.arrivals = Arrivals::kTrace;
  options_.time_scale = 0.1;
  add(100, 1);
  add(100, 1, 10 * kSecond);
  mode_.no_cache = true;
  open();
  const RankRun run = play_out();
  EXPECT_NEAR(run.elapsed_s, 1.01, 1e-9);
  EXPECT_NEAR(run.ttft_s.at(1), 0.01, 1e-9);
  EXPECT_NEAR(run.idle_s, 0.99, 1e-9);
  EXPECT_NEAR(run.forward_s, 0.02, 1e-9);
}

TEST_F(ServingLoopTest, ARequestThatComesDuringAPassIsTimedFromItsArrival) {
  options_.arrivals = Arrivals::kTrace;
  add(1000, 1);
  add(10, 1, 400 * kMs);
  mode_.no_cache = true;
  open();
  const RankRun run = play_out();
  EXPECT_NEAR(run.ttft_s.at(1), 0.61, 1e-9);
}

TEST_F(ServingLoopTest, AClosedLoopKeepsItsNumberInTheSystem) {
  options_.in_system_max = 1;
  for (int i = 0; i < 4; ++i) add(100, 1);
  mode_.no_cache = true;
  open();
  const RankRun one = play_out();
  for (const double ttft : one.ttft_s) EXPECT_NEAR(ttft, 0.1, 1e-9);
  EXPECT_EQ(one.steps, 4U);

  options_.in_system_max = 2;
  open();
  const RankRun two = play_out();
  EXPECT_EQ(two.steps, 2U);
  for (const double ttft : two.ttft_s) EXPECT_NEAR(ttft, 0.2, 1e-9);
  EXPECT_NEAR(two.elapsed_s, 0.4, 1e-9);
}

TEST_F(ServingLoopTest, ARequestThatNeverFitsIsRejectedAndHoldsUpNobody) {
  options_.in_system_max = 1;
  options_.scheduler.kv.capacity_tokens = 512;
  add(100, 1);
  add(5000, 1);
  add(100, 1);
  mode_.no_cache = true;
  open();
  const RankRun run = play_out();
  EXPECT_EQ(run.requests, 2U);
  EXPECT_EQ(run.rejected, 1U);
  EXPECT_EQ(run.prompt_tokens, 200U);
  EXPECT_EQ(loop_->finished(), 3U);
}

TEST_F(ServingLoopTest, NoRequestsAreOverAtOnce) {
  open();
  EXPECT_EQ(act(), kNever);
  EXPECT_TRUE(loop_->done());
  EXPECT_EQ(loop_->take_run().requests, 0U);
}

TEST_F(ServingLoopTest, ALoopBeginsAnewWithTheSameFigures) {
  for (int i = 0; i < 3; ++i) add(100, 2);
  open();
  const RankRun first = play_out();
  clock_.advance(kSecond);
  ASSERT_TRUE(loop_->begin(mode_, clock_.now()).is_ok());
  const RankRun second = play_out();
  EXPECT_EQ(first.ttft_s, second.ttft_s);
  EXPECT_EQ(first.e2e_s, second.e2e_s);
  EXPECT_EQ(first.computed_tokens, second.computed_tokens);
}

/// A clock on which every look costs a millisecond: making payloads is then never free.
class SlowClock final : public Clock {
 public:
  explicit SlowClock(FakeClock& clock) : clock_(clock) {}
  Nanos now() const override {
    clock_.advance(kMs);
    return clock_.now();
  }

 private:
  FakeClock& clock_;
};

TEST_F(ServingLoopTest, WhatMakingPayloadsTakesBeyondAPassIsNoPartOfItsTimes) {
  const SlowClock slow(clock_);
  options_.clock = &slow;
  add(100, 2);
  open();
  const RankRun run = play_out();
  EXPECT_GT(run.excluded_s, 0.001);
  EXPECT_NEAR(run.ttft_s.at(0), 0.1, 1e-9);
  EXPECT_NEAR(run.e2e_s.at(0), 0.2, 1e-9);
  EXPECT_NEAR(run.elapsed_s, 0.2, 1e-9);
}

class StoppedLoop : public ServingLoopTest {
 protected:
  void SetUp() override { options_.stop = &stop_; }
  void expect_stopped(std::uint32_t requests) {
    stop_ = true;
    EXPECT_EQ(act(), kNever);
    EXPECT_TRUE(loop_->done());
    const RankRun run = loop_->take_run();
    EXPECT_TRUE(run.interrupted);
    EXPECT_EQ(run.requests, requests);
    expect_leases_over();
  }
  std::atomic<bool> stop_{false};
};

TEST_F(StoppedLoop, BeforeItsFirstStepHasDoneNothing) {
  add(100, 1);
  open();
  expect_stopped(0);
}

TEST_F(StoppedLoop, InAForwardPassEndsAtOnce) {
  add(10'000, 1);
  open();
  act();
  clock_.advance(kMs);
  expect_stopped(0);
}

TEST_F(StoppedLoop, WhileItWaitsForArrivalsEndsAtOnce) {
  options_.arrivals = Arrivals::kTrace;
  add(10, 1);
  add(10, 1, 3600 * kSecond);
  mode_.no_cache = true;
  open();
  go_on(kSecond);
  expect_stopped(1);
}

TEST_F(StoppedLoop, InALoadCancelsIt) {
  const RequestIndex request = add(100, 1);
  store(request, 3);
  open();
  act();
  ASSERT_EQ(engine().loads.size(), 1U);
  expect_stopped(0);
  EXPECT_EQ(engine().cancels, 1U);
}

TEST_F(StoppedLoop, InALoadThatCannotBeCancelledInTimeReadsNoResultOfIt) {
  const RequestIndex request = add(100, 1);
  store(request, 3);
  engine().cancel_takes_time = true;
  open();
  act();
  ASSERT_EQ(engine().loads.size(), 1U);
  expect_stopped(0);
}

TEST_F(StoppedLoop, WithSerialLoadsInTurnGivesTheirLeasesBack) {
  options_.scheduler.load_mode = LoadMode::kAsync;
  mode_.policy = ReadPolicy::kSerial;
  for (int i = 0; i < 3; ++i) store(add(100, 1), 3);
  open();
  act();
  ASSERT_EQ(engine().loads.size(), 1U);
  expect_stopped(0);
}

TEST_F(StoppedLoop, WithARequestThatWaitsForRoomGivesItsLeaseBack) {
  options_.scheduler.chunked_prefill = false;
  options_.scheduler.token_budget = 132;
  options_.forward = PlainRates{1000, 400};
  options_.arrivals = Arrivals::kTrace;
  for (int i = 0; i < 40; ++i) add(10, 41);
  const RequestIndex last = add(132, 1, 10 * kMs);
  store(last, 1);
  open();
  go_on(kSecond);
  ASSERT_EQ(engine().leases.size(), 1U);
  expect_stopped(0);
}

TEST_F(StoppedLoop, WhileItWaitsForInlineWritesEndsAtOnce) {
  add(100, 1);
  mode_.writes = WriteTiming::kInline;
  open();
  go_on();
  ASSERT_EQ(engine().saves.size(), 1U);
  ASSERT_FALSE(loop_->done());
  expect_stopped(0);
}

}  // namespace
}  // namespace kvstream
