// What the serving loop loads, when it waits for it, and what becomes of what does not come.
#include <gtest/gtest.h>

#include <algorithm>

#include "replay/serving_rig.hpp"

namespace kvstream {
namespace {

using test::FakeTicket;

TEST_F(ServingLoopTest, ASyncLoadEndsBeforeThePassAndDecodesWaitWithIt) {
  options_.arrivals = Arrivals::kTrace;
  add(100, 3);
  const RequestIndex second = add(64, 1, 50 * kMs);
  store(second, 2);
  open();
  // 0-100: the first's prompt. Then it could decode, but the second's load is in the step.
  go_on();
  EXPECT_EQ(clock_.now(), begun_ + 100 * kMs);
  ASSERT_EQ(engine().loads.size(), 1U);
  EXPECT_EQ(act_at(700 * kMs), kNever);
  engine().bring(0);
  // The pass: one decoded token of each (63 of 64 tokens were loaded).
  EXPECT_EQ(act_at(1000 * kMs), begun_ + 1200 * kMs);
  const RankRun run = play_out();
  EXPECT_NEAR(run.ttft_s.at(0), 0.1, 1e-9);
  EXPECT_NEAR(run.ttft_s.at(1), 1.15, 1e-9);
  EXPECT_NEAR(run.read_wait_s, 0.9, 1e-9);
  EXPECT_NEAR(run.e2e_s.at(1), 1.3, 1e-9) << "the first's decodes waited";
  EXPECT_EQ(run.cached_tokens, 63U);
  expect_tokens_close(run);
  expect_leases_over();
}

TEST_F(ServingLoopTest, AnAsyncLoadHoldsUpNobodyAndItsRequestJoinsWhenItIsThere) {
  options_.arrivals = Arrivals::kTrace;
  options_.scheduler.load_mode = LoadMode::kAsync;
  add(100, 4);
  const RequestIndex second = add(64, 1, 50 * kMs);
  store(second, 2);
  open();
  go_on(250 * kMs);
  ASSERT_EQ(engine().loads.size(), 1U);
  engine().bring(0);
  act();
  // The pass of 200-300 is under way; the second joins that of 300-500.
  const RankRun run = play_out();
  EXPECT_NEAR(run.ttft_s.at(1), 0.45, 1e-9);
  EXPECT_NEAR(run.read_wait_s, 0, 1e-9);
  EXPECT_EQ(run.steps, 4U);
  expect_tokens_close(run);
  expect_leases_over();
}

TEST_F(ServingLoopTest, AnAsyncLoopThatHasNothingButLoadsWaitsForReads) {
  options_.scheduler.load_mode = LoadMode::kAsync;
  store(add(64, 1), 2);
  open();
  go_on();
  clock_.advance(500 * kMs);
  engine().bring(0);
  const RankRun run = play_out();
  EXPECT_NEAR(run.read_wait_s, 0.5, 1e-9);
  EXPECT_NEAR(run.idle_s, 0, 1e-9);
  EXPECT_NEAR(run.ttft_s.at(0), 0.6, 1e-9);
}

TEST_F(ServingLoopTest, AsyncLoadsAreOneARequestAndSerialOnesComeInTurn) {
  options_.scheduler.load_mode = LoadMode::kAsync;
  for (int i = 0; i < 3; ++i) store(add(64, 1), 2);
  open();
  act();
  EXPECT_EQ(engine().loads.size(), 3U);
  play_out();

  mode_.policy = ReadPolicy::kSerial;
  engine().loads.clear();
  open();
  for (std::size_t i = 0; i < 3; ++i) {
    go_on();
    ASSERT_EQ(engine().loads.size(), i + 1);
    EXPECT_EQ(engine().loads[i]->keys_.at(0), requests_[i].keys) << "not in their order";
    engine().bring(i);
  }
  const RankRun run = play_out();
  EXPECT_EQ(run.requests, 3U);
  EXPECT_EQ(run.hits, 6U);
  expect_leases_over();
}

TEST_F(ServingLoopTest, ASyncStepHasOneLoadForAllItsRequests) {
  for (int i = 0; i < 3; ++i) store(add(64, 1), 2);
  open();
  act();
  ASSERT_EQ(engine().loads.size(), 1U);
  EXPECT_EQ(engine().loads[0]->keys_.size(), 3U);
  play_out();
}

TEST_F(ServingLoopTest, WhatALoadDoesNotBringIsComputed) {
  for (const LoadMode load_mode : {LoadMode::kSync, LoadMode::kAsync}) {
    for (const std::size_t brought : {0U, 1U, 2U}) {
      SCOPED_TRACE(brought);
      options_.scheduler.load_mode = load_mode;
      requests_.clear();
      engines_.clear();
      store(add(100, 2), 3);
      open();
      act();
      ASSERT_EQ(engine().loads.size(), 1U);
      engine().lose(0, brought);
      const RankRun run = play_out();
      EXPECT_EQ(run.requests, 1U);
      EXPECT_EQ(run.cached_tokens, brought * kBlock);
      EXPECT_EQ(run.computed_tokens, 100 - brought * kBlock);
      EXPECT_EQ(run.hits, brought);
      EXPECT_EQ(run.misses, 3 - brought);
      expect_tokens_close(run);
      expect_leases_over();
    }
  }
}

TEST_F(ServingLoopTest, HitsBehindAHoleAreCountedButNotUsed) {
  store(add(128, 1), 4);
  open();
  act();
  engine().end(*engine().loads.at(0), [](std::size_t, std::size_t block) {
    return block == 1 ? BlockState::kLate : BlockState::kHit;
  });
  const RankRun run = play_out();
  EXPECT_EQ(run.hits, 3U);
  EXPECT_EQ(run.late, 1U);
  EXPECT_EQ(run.usable_blocks, 1U);
  EXPECT_EQ(run.cached_tokens, kBlock);
}

TEST_F(ServingLoopTest, ALoadThatTheEngineRefusesIsComputedAndTheAccountsClose) {
  for (const LoadMode load_mode : {LoadMode::kSync, LoadMode::kAsync}) {
    options_.scheduler.load_mode = load_mode;
    requests_.clear();
    engines_.clear();
    for (int i = 0; i < 3; ++i) store(add(100, 2), 3);
    engine().refuses_loads = true;
    open();
    const RankRun run = play_out();
    EXPECT_EQ(run.requests, 3U);
    EXPECT_EQ(run.computed_tokens, 300U);
    EXPECT_EQ(run.cached_tokens, 0U);
    expect_tokens_close(run);
    expect_leases_over();
  }
}

TEST_F(ServingLoopTest, ASerialLoadThatIsRefusedWhenItsTurnComesIsComputed) {
  options_.scheduler.load_mode = LoadMode::kAsync;
  mode_.policy = ReadPolicy::kSerial;
  for (int i = 0; i < 3; ++i) store(add(100, 2), 3);
  open();
  act();
  engine().refuses_loads = true;
  engine().bring(0);
  const RankRun run = play_out();
  EXPECT_EQ(run.requests, 3U);
  EXPECT_EQ(run.cached_tokens, 96U);
  expect_tokens_close(run);
  expect_leases_over();
}

TEST_F(ServingLoopTest, ARequestThatWaitsForRoomInAStepIsLookedUpAgainOnlyWhenHalfItsLeaseIsOver) {
  options_.scheduler.chunked_prefill = false;
  options_.scheduler.token_budget = 132;
  options_.forward = PlainRates{1000, 400};
  options_.arrivals = Arrivals::kTrace;
  options_.lease_ns = 2 * kSecond;
  // 40 requests decode, a token each in 40 steps of 100 ms: the 100 missing tokens of the last one
  // do not fit beside them.
  for (int i = 0; i < 40; ++i) add(10, 41);
  const RequestIndex last = add(100 + kBlock, 1, 10 * kMs);
  store(last, 1);
  open();
  go_on(3 * kSecond);
  EXPECT_GE(engine().lookups, 40U + 2U);
  // (Some of the 40 were asked for a second time while they waited for room in the first steps.)
  EXPECT_LE(engine().lookups, 40U + 3U + 4U) << "asked at every step";
  EXPECT_EQ(engine().leases.size(), 1U);
  const RankRun run = play_out();
  EXPECT_EQ(run.requests, 41U);
  EXPECT_EQ(run.cached_tokens, kBlock);
  EXPECT_EQ(run.blocks_asked, 40U + 5U) << "a block that is asked for again counts once";
  expect_leases_over();
}

TEST_F(ServingLoopTest, AnAnswerThatIsPendingPassesTheRequestOverAndIsAskedForAgain) {
  store(add(64, 1), 2);
  engine().pending = true;
  open();
  const Nanos again = act();
  EXPECT_GT(again, clock_.now());
  EXPECT_LE(again, clock_.now() + 10 * kMs);
  EXPECT_EQ(engine().loads.size(), 0U);
  engine().pending = false;
  clock_.set(again);
  act();
  EXPECT_EQ(engine().loads.size(), 1U);
  play_out();
  expect_leases_over();
}

TEST_F(ServingLoopTest, NoCacheAsksForNothingAndSavesNothing) {
  store(add(100, 2), 3);
  mode_.no_cache = true;
  open();
  const RankRun run = play_out();
  EXPECT_EQ(engine().lookups, 0U);
  EXPECT_EQ(engine().saves.size(), 0U);
  EXPECT_EQ(run.blocks_asked, 0U);
  EXPECT_EQ(run.computed_tokens, 100U);
}

template <class SomeSpan>
bool overlap(const std::vector<Span>& a, const std::vector<SomeSpan>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Span& x) {
    return std::any_of(b.begin(), b.end(), [&](const SomeSpan& y) {
      return x.data < y.data + y.size_bytes && y.data < x.data + x.size_bytes;
    });
  });
}

TEST_F(ServingLoopTest, MemoryThatADeviceMayStillWriteIntoIsNotUsedAgainBeforeItIsDrained) {
  options_.in_system_max = 1;
  for (int i = 0; i < 40; ++i) store(add(64, 1), 2);
  open();
  act();
  FakeTicket& late = *engine().loads.at(0);
  engine().end(late, [](std::size_t, std::size_t) { return BlockState::kLate; });
  for (std::size_t i = 1; i < 40; ++i) {
    go_on();
    if (engine().loads.size() <= i) {
      for (std::size_t s = 0; s < engine().saves.size(); ++s) engine().settle(s);
      go_on();
    }
    ASSERT_GT(engine().loads.size(), i);
    EXPECT_FALSE(overlap(late.into_, engine().loads[i]->into_)) << "load " << i;
    engine().bring(i);
  }
  for (const auto& save : engine().saves) EXPECT_FALSE(overlap(late.into_, save->from_));
  late.drained_ = true;
  const RankRun run = play_out();
  EXPECT_EQ(run.late, 2U);
  EXPECT_EQ(run.requests, 40U);
}

TEST_F(ServingLoopTest, DestinationsOfALoadDoNotOverlapEachOther) {
  for (int i = 0; i < 4; ++i) store(add(128, 1), 4);
  open();
  act();
  auto into = engine().loads.at(0)->into_;
  ASSERT_EQ(into.size(), 16U);
  std::sort(into.begin(), into.end(), [](const Span& a, const Span& b) { return a.data < b.data; });
  for (std::size_t i = 1; i < into.size(); ++i) {
    EXPECT_LE(into[i - 1].data + options_.block_bytes_max, into[i].data);
  }
  play_out();
}

TEST_F(ServingLoopTest, ShardsLoadWhatAllOfThemHaveAndABlockIsThereWhenAllPartsAre) {
  for (const std::size_t poor : {0U, 1U}) {
    SCOPED_TRACE(poor);
    requests_.clear();
    engines_.clear();
    const RequestIndex request = add(128, 1);
    store(request, poor == 0 ? 2 : 4, 0);
    store(request, poor == 0 ? 4 : 2, 1);
    open(2);
    act();
    ASSERT_EQ(engine(0).loads.size(), 1U);
    ASSERT_EQ(engine(1).loads.size(), 1U);
    EXPECT_EQ(engine(0).loads[0]->keys_.at(0).size(), 2U);
    EXPECT_EQ(engine(1 - poor).never_loaded, 2U);
    engine(1 - poor).bring(0);
    EXPECT_EQ(act_at(kSecond), kNever) << "the other shard's part is not there";
    engine(poor).lose(0, 1);
    const RankRun run = play_out();
    EXPECT_EQ(run.cached_tokens, kBlock);
    EXPECT_EQ(run.computed_tokens, 96U);
    expect_tokens_close(run);
    expect_leases_over();
    EXPECT_EQ(engine(0).saves.size(), engine(1).saves.size());
  }
}

TEST_F(ServingLoopTest, ALoadThatOneShardRefusesIsComputedByAllAndItsMemoryComesBack) {
  for (const LoadMode load_mode : {LoadMode::kSync, LoadMode::kAsync}) {
    options_.scheduler.load_mode = load_mode;
    options_.scheduler.kv.capacity_tokens = 512;
    options_.scheduler.token_budget = 512;
    options_.scheduler.sequences_max = 2;
    options_.in_system_max = 1;
    requests_.clear();
    engines_.clear();
    // So many that memory which is lost with each of them runs out.
    for (int i = 0; i < 100; ++i) {
      const RequestIndex request = add(256, 1);
      store(request, 8, 0);
      store(request, 8, 1);
    }
    engine(1).refuses_loads = true;
    engine(0).saves_at_once = engine(1).saves_at_once = true;
    open(2);
    const RankRun run = play_out();
    EXPECT_EQ(run.requests, 100U);
    EXPECT_EQ(run.computed_tokens, 25'600U);
    EXPECT_EQ(engine(0).loads.size(), 100U) << "memory for loads ran out";
    EXPECT_EQ(run.cancelled, 800U) << "the part that was begun is in the account";
    expect_tokens_close(run);
    expect_leases_over();
  }
}

TEST_F(ServingLoopTest, WhatTheOtherShardBringsOfARefusedLoadIsNotUsed) {
  const RequestIndex request = add(128, 1);
  store(request, 4, 0);
  store(request, 4, 1);
  engine(0).cancel_takes_time = engine(1).refuses_loads = true;
  open(2);
  EXPECT_EQ(act(), kNever) << "a device may still write into its memory";
  engine(0).bring(0);
  const RankRun run = play_out();
  EXPECT_EQ(run.hits, 4U);
  EXPECT_EQ(run.cached_tokens, 0U);
  EXPECT_EQ(run.computed_tokens, 128U);
  expect_tokens_close(run);
  expect_leases_over();
}

TEST_F(ServingLoopTest, ARequestThatWaitsForRoomOnTheDeviceIsNotPolledFor) {
  options_.scheduler.load_mode = LoadMode::kAsync;
  options_.scheduler.kv.capacity_tokens = 160;
  store(add(128, 1), 4);
  store(add(128, 1), 4);
  open();
  EXPECT_EQ(act(), kNever);
  EXPECT_EQ(engine().loads.size(), 1U);
  const RankRun run = play_out();
  EXPECT_EQ(run.requests, 2U);
  expect_leases_over();
}

}  // namespace
}  // namespace kvstream
