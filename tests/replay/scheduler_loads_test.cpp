// What the scheduler does with what an external cache has: sync, async, late and failed loads.
#include <gtest/gtest.h>

#include "engine_rig.hpp"

namespace kvstream {
namespace {

TEST_F(SchedulerTest, TheExternalCacheIsAskedForWhatLiesBehindTheDevices) {
  add(100, 1, 7, 2);
  add(200, 1, 7, 2);
  external_.answers[1] = {.blocks = 5};
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  step();
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  const Batch& batch = schedule();
  EXPECT_EQ(external_.asked.back(), (std::pair<RequestIndex, std::uint32_t>{1, 2}));
  ASSERT_EQ(batch.loads.size(), 1U);
  EXPECT_EQ(batch.loads[0].first_block, 2U);
  EXPECT_EQ(batch.loads[0].count, 3U);
  EXPECT_EQ(batch.work[0].context_tokens, 160U);
  scheduler_->loaded(1, 3);
  scheduler_->forward_ended();
  EXPECT_EQ(scheduler_->accounts().cached_device, 64U);
  EXPECT_EQ(scheduler_->accounts().cached, 96U);
  expect_closed();
}

TEST_F(SchedulerTest, CachedTokensDoNotUseTheBudget) {
  options_.token_budget = 20;
  add(10 * kBlock + 5, 1);
  add(15, 1);
  external_.answers[0] = {.blocks = 10};
  start();
  arrive_all();
  EXPECT_EQ(who(schedule()), (Who{0, 1}));
}

TEST_F(SchedulerTest, APromptThatIsWhollyLoadedComputesOnlyItsLastToken) {
  add(70, 1);
  external_.answers[0] = {.blocks = 3};  // the last is partial
  start();
  arrive_all();
  const Batch& batch = schedule();
  EXPECT_EQ(batch.loads[0].count, 3U);
  EXPECT_EQ(batch.work[0].context_tokens, 69U);
  EXPECT_EQ(batch.work[0].new_tokens, 1U);
  scheduler_->loaded(0, 3);
  EXPECT_TRUE(scheduler_->forward_ended().computed.empty());
  EXPECT_EQ(scheduler_->accounts().cached, 69U);
  expect_closed();
}

TEST_F(SchedulerTest, AnAsyncLoadTakesItsPagesAtOnceAndLetsOthersPass) {
  options_.load_mode = LoadMode::kAsync;
  add(4 * kBlock + 8, 2);
  add(20, 1);
  external_.answers[0] = {.blocks = 4};
  start();
  arrive_all();
  const Batch& batch = schedule();
  EXPECT_EQ(who(batch), Who{1});
  ASSERT_EQ(batch.loads.size(), 1U);
  EXPECT_EQ(scheduler_->loading(), 1U);
  EXPECT_EQ(scheduler_->kv().used_pages(), 8U + 2U);
  scheduler_->forward_ended();
  EXPECT_TRUE(schedule().work.empty());
  EXPECT_TRUE(schedule().loads.empty());  // and is not asked for twice

  scheduler_->loaded(0, 4);
  const Batch& joined = schedule();
  ASSERT_EQ(who(joined), Who{0});
  EXPECT_EQ(joined.work[0].context_tokens, 128U);
  EXPECT_EQ(joined.work[0].new_tokens, 8U);
  scheduler_->forward_ended();
  run_out();
  EXPECT_EQ(scheduler_->accounts().cached, 128U);
  expect_closed();
}

TEST_F(SchedulerTest, ALoadedRequestKeepsItsPlaceBeforeThoseThatCameLater) {
  options_.load_mode = LoadMode::kAsync;
  options_.sequences_max = 1;
  add(2 * kBlock + 8, 1);
  add(20, 2);
  add(20, 1);
  external_.answers[0] = {.blocks = 2};
  start();
  arrive_all();
  EXPECT_EQ(who(schedule()), Who{1});
  scheduler_->forward_ended();
  scheduler_->loaded(0, 2);
  step();
  EXPECT_EQ(who(schedule()), Who{0});
}

TEST_F(SchedulerTest, BlocksThatAreStillLoadingAreNotFoundByOthers) {
  options_.load_mode = LoadMode::kAsync;
  add(100, 1, 7, 3);
  add(100, 1, 7, 3);
  external_.answers[0] = {.blocks = 3};
  start();
  arrive_all();
  const Batch& batch = schedule();
  ASSERT_EQ(who(batch), Who{1});
  EXPECT_EQ(batch.work[0].context_tokens, 0U);
}

TEST_F(SchedulerTest, LoadedBlocksAreFoundByOthers) {
  options_.load_mode = LoadMode::kAsync;
  add(100, 1, 7, 3);
  add(100, 1, 7, 3);
  external_.answers[0] = {.blocks = 3};
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  schedule();
  scheduler_->loaded(0, 3);
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  const Batch& batch = schedule();
  ASSERT_EQ(who(batch), (Who{0, 1}));
  EXPECT_EQ(batch.work[1].context_tokens, 96U);
}

TEST_F(SchedulerTest, ARequestWhoseLookUpIsPendingIsPassedOver) {
  add(100, 1);
  add(20, 1);
  external_.answers[0] = {.pending = true};
  start();
  arrive_all();
  EXPECT_EQ(who(schedule()), Who{1});
  scheduler_->forward_ended();
  external_.answers[0] = {};
  EXPECT_EQ(who(schedule()), Who{0});
}

TEST_F(SchedulerTest, AfterPreemptionTheExternalCacheIsAskedAgain) {
  options_.kv.prefix_cache = PrefixCache::kOff;
  add(32, 40);
  add(32, 40);
  start(112);
  arrive_all();
  for (int i = 0; i < 18; ++i) step();
  ASSERT_EQ(scheduler_->accounts().preemptions, 1U);
  external_.answers[1] = {.blocks = 1};
  run_out();
  EXPECT_EQ(scheduler_->accounts().cached, 32U);
  expect_closed();
}

TEST_F(SchedulerTest, AFailedSyncLoadIsComputedInTheNextStepFromWhatWasUsable) {
  add(4 * kBlock + 10, 1);
  external_.answers[0] = {.blocks = 4};
  start();
  arrive_all();
  schedule();
  scheduler_->loaded(0, 1);
  EXPECT_TRUE(scheduler_->forward_ended().first_token.empty());
  EXPECT_EQ(scheduler_->accounts().discarded, 10U);
  const Batch& again = schedule();
  EXPECT_TRUE(again.loads.empty());
  EXPECT_EQ(again.work[0].context_tokens, 32U);
  EXPECT_EQ(again.work[0].new_tokens, 3 * kBlock + 10);
  const Ended& ended = scheduler_->forward_ended();
  ASSERT_EQ(ended.computed.size(), 1U);
  EXPECT_EQ(ended.computed[0].first_block, 1U);
  EXPECT_EQ(ended.computed[0].count, 4U);
  EXPECT_EQ(scheduler_->accounts().cached, 32U);
  expect_closed();
}

TEST_F(SchedulerTest, BlocksOfAFailedSyncLoadAreFoundByNobody) {
  add(100, 1, 7, 3);
  add(120, 1, 7, 3);
  add(120, 1, 7, 3);
  external_.answers[0] = {.blocks = 3};
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  const Batch& batch = schedule();
  ASSERT_EQ(who(batch), (Who{0, 1}));
  EXPECT_EQ(batch.work[1].context_tokens, 96U);  // those that the first loads
  scheduler_->loaded(0, 1);
  EXPECT_TRUE(scheduler_->forward_ended().finished.empty());
  EXPECT_EQ(scheduler_->accounts().cached_device, 32U);
  const Batch& again = schedule();
  EXPECT_EQ(again.work[0].context_tokens, 32U);
  EXPECT_EQ(again.work[1].context_tokens, 32U);
  scheduler_->forward_ended();
  expect_closed();
  ASSERT_TRUE(scheduler_->arrive(2).is_ok());
  EXPECT_EQ(schedule().work[0].context_tokens, 96U);  // computed by now
}

TEST_F(SchedulerTest, AFailedAsyncLoadIsComputedFromWhatWasUsable) {
  options_.load_mode = LoadMode::kAsync;
  add(4 * kBlock + 10, 1);
  external_.answers[0] = {.blocks = 4};
  start();
  arrive_all();
  schedule();
  scheduler_->loaded(0, 2);
  const Batch& batch = schedule();
  EXPECT_EQ(batch.work[0].context_tokens, 64U);
  EXPECT_EQ(batch.work[0].new_tokens, 74U);
  scheduler_->forward_ended();
  expect_closed();
}

TEST_F(SchedulerTest, AnAsyncLoadThatBringsNothingIsNotAskedForAgain) {
  options_.load_mode = LoadMode::kAsync;
  add(4 * kBlock + 10, 1);
  external_.answers[0] = {.blocks = 4};
  start();
  arrive_all();
  schedule();
  scheduler_->loaded(0, 0);
  EXPECT_EQ(scheduler_->kv().used_pages(), 0U);
  const Batch& batch = schedule();
  EXPECT_TRUE(batch.loads.empty());
  EXPECT_EQ(batch.work[0].new_tokens, 4 * kBlock + 10);
  scheduler_->forward_ended();
  expect_closed();
}

TEST_F(SchedulerTest, AnAsyncLoadLeavesThePagesThatAnEarlierOneStillNeeds) {
  options_.load_mode = LoadMode::kAsync;
  add(4 * kBlock, 1);
  add(4 * kBlock + 1, 1);
  external_.answers[0] = {.blocks = 1};
  external_.answers[1] = {.blocks = 4};
  start(192);  // 12 pages: two loaded for the first, six needed later, four left
  arrive_all();
  const Batch& batch = schedule();
  ASSERT_EQ(batch.loads.size(), 1U);
  EXPECT_EQ(batch.loads[0].request, 0U);
}

TEST_F(SchedulerTest, ALoadedRequestLetsGoWhenItsPagesKeepEverybodyFromRunning) {
  options_.load_mode = LoadMode::kAsync;
  options_.sequences_max = 1;
  add(48, 20);
  add(65, 1);
  external_.answers[1] = {.blocks = 2};
  start(128);  // eight pages: three for the first's prompt, four for the load, one left
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  ASSERT_EQ(schedule().loads.size(), 1U);
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  for (int i = 0; i < 17; ++i) step();
  ASSERT_EQ(scheduler_->kv().free_pages(), 0U);
  scheduler_->loaded(1, 2);
  const Batch& batch = schedule();
  EXPECT_EQ(batch.preempted, (Who{0, 1}));  // the first finds no page for its 65th token
  EXPECT_EQ(who(batch), Who{0});
  scheduler_->forward_ended();
  external_.answers.clear();
  run_out();
  EXPECT_EQ(scheduler_->accounts().finished, 2U);
  EXPECT_EQ(scheduler_->accounts().preemptions, 2U);
  // The first found its block again, and the second one of those it had loaded and let go.
  EXPECT_EQ(scheduler_->accounts().cached_device, 32U + 32U);
  expect_closed();
}

TEST_F(SchedulerTest, WhatAFailedSyncLoadDidNotBringIsNotFoundAfterPreemption) {
  add(32, 20);
  add(100, 1);
  external_.answers[1] = {.blocks = 3};
  start(160);  // ten pages
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  for (int i = 0; i < 16; ++i) step();  // 47 tokens are there
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  ASSERT_EQ(who(schedule()), (Who{0, 1}));
  scheduler_->loaded(1, 1);
  scheduler_->forward_ended();
  external_.answers.clear();
  ASSERT_EQ(schedule().preempted, Who{1});
  scheduler_->forward_ended();
  run_out();
  EXPECT_EQ(scheduler_->accounts().cached_device, 32U);
  EXPECT_EQ(scheduler_->accounts().cached, 32U);
  expect_closed();
}

}  // namespace
}  // namespace kvstream
