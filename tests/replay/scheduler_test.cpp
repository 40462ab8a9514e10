#include "replay/scheduler.hpp"

#include <gtest/gtest.h>

#include "engine_rig.hpp"

namespace kvstream {
namespace {

TEST_F(SchedulerTest, ARequestSamplesOneTokenAStepOnceItsPromptIsComputed) {
  add(40, 3);
  start();
  arrive_all();
  const Batch& first = schedule();
  ASSERT_EQ(first.work.size(), 1U);
  EXPECT_EQ(first.work[0].new_tokens, 40U);
  EXPECT_TRUE(first.work[0].samples);
  EXPECT_EQ(scheduler_->forward_ended().first_token, Who{0});
  const Batch& second = schedule();
  EXPECT_EQ(second.work[0].new_tokens, 1U);
  EXPECT_EQ(second.work[0].context_tokens, 40U);
  EXPECT_TRUE(scheduler_->forward_ended().first_token.empty());
  EXPECT_EQ(step().finished, Who{0});
  EXPECT_EQ(scheduler_->unfinished(), 0U);
  EXPECT_EQ(scheduler_->accounts().output, 3U);
  expect_closed();
}

TEST_F(SchedulerTest, PromptsAreComputedInPartsWithinTheBudget) {
  options_.token_budget = 100;
  add(250, 1);
  start();
  arrive_all();
  const std::vector<std::uint32_t> parts = {100, 100, 50};
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const Batch& batch = schedule();
    ASSERT_EQ(batch.work.size(), 1U);
    EXPECT_EQ(batch.work[0].new_tokens, parts[at]);
    EXPECT_EQ(batch.work[0].samples, at == 2);
    scheduler_->forward_ended();
  }
  expect_closed();
}

TEST_F(SchedulerTest, RunningRequestsComeFirstAndTheRestOfTheBudgetIsForNewOnes) {
  options_.token_budget = 64;
  add(32, 5);
  add(100, 1);
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  step();
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  const Batch& batch = schedule();
  ASSERT_EQ(who(batch), (Who{0, 1}));
  EXPECT_EQ(batch.work[0].new_tokens, 1U);
  EXPECT_EQ(batch.work[1].new_tokens, 63U);
}

TEST_F(SchedulerTest, WithoutChunkedPrefillAPromptWaitsForAWholeBudget) {
  options_.token_budget = 64;
  options_.chunked_prefill = false;
  add(32, 3);
  add(64, 1);
  add(65, 1);
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  EXPECT_EQ(scheduler_->arrive(2).code(), Code::kNoSpace);
  EXPECT_EQ(who(schedule()), Who{0});
  scheduler_->forward_ended();
  EXPECT_EQ(who(schedule()), Who{0});  // 63 tokens are left, and it needs 64
  scheduler_->forward_ended();
  step();
  EXPECT_EQ(who(schedule()), Who{1});
}

TEST_F(SchedulerTest, NoMoreSequencesRunThanAllowed) {
  options_.sequences_max = 2;
  for (int i = 0; i < 3; ++i) add(20, 2);
  start();
  arrive_all();
  EXPECT_EQ(who(schedule()), (Who{0, 1}));
  scheduler_->forward_ended();
  step();
  EXPECT_EQ(who(schedule()), Who{2});
}

TEST_F(SchedulerTest, AHeadThatDoesNotFitHoldsUpThoseBehindIt) {
  add(64, 2);
  add(128, 1);
  add(16, 1);
  start(160);
  arrive_all();
  EXPECT_EQ(who(schedule()), Who{0});
  scheduler_->forward_ended();
  EXPECT_EQ(who(schedule()), Who{0});
  scheduler_->forward_ended();
  EXPECT_EQ(who(schedule()), (Who{1, 2}));
}

TEST_F(SchedulerTest, APromptIsLetInOnlyWhenAllOfItFitsThoughItIsComputedInParts) {
  options_.token_budget = 70;
  add(64, 20);
  add(128, 1);
  start(160);
  arrive_all();
  EXPECT_EQ(who(schedule()), Who{0});  // six tokens of the second would fit
}

TEST_F(SchedulerTest, ThePrefixOfAFinishedRequestIsFoundOnTheDevice) {
  add(100, 1, 7, 3);
  add(120, 1, 7, 3);
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  step();
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  const Batch& batch = schedule();
  EXPECT_EQ(batch.work[0].context_tokens, 96U);
  EXPECT_EQ(batch.work[0].new_tokens, 24U);
  scheduler_->forward_ended();
  EXPECT_EQ(scheduler_->accounts().cached_device, 96U);
  expect_closed();
}

TEST_F(SchedulerTest, WithoutAPrefixCacheNothingIsFoundOnTheDevice) {
  options_.kv.prefix_cache = PrefixCache::kOff;
  add(100, 1, 7, 3);
  add(120, 1, 7, 3);
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  step();
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  EXPECT_EQ(schedule().work[0].new_tokens, 120U);
}

TEST_F(SchedulerTest, TwoRequestsOfOnePrefixAdmittedInOneStepComputeItOnce) {
  add(100, 1, 7, 3);
  add(120, 1, 7, 3);
  start();
  arrive_all();
  const Batch& batch = schedule();
  ASSERT_EQ(who(batch), (Who{0, 1}));
  EXPECT_EQ(batch.work[1].context_tokens, 96U);
  scheduler_->forward_ended();
  EXPECT_EQ(scheduler_->accounts().computed, 100U + 24U);
  expect_closed();
}

TEST_F(SchedulerTest, APromptThatIsWhollyOnTheDeviceComputesItsLastPageAgain) {
  add(96, 1, 7, 3);
  add(96, 1, 7, 3);
  start();
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  step();
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  const Batch& batch = schedule();
  EXPECT_EQ(batch.work[0].context_tokens, 80U);
  EXPECT_EQ(batch.work[0].new_tokens, 16U);
  EXPECT_TRUE(scheduler_->forward_ended().computed.empty());
  expect_closed();
}

TEST_F(SchedulerTest, TheLastRunningGivesWayWhenADecodeFindsNoPage) {
  add(32, 40);
  add(32, 40);
  start(112);  // seven pages
  arrive_all();
  for (int i = 0; i < 17; ++i) step();  // both have 48 tokens, three pages each
  EXPECT_EQ(scheduler_->accounts().preemptions, 0U);
  const Batch& batch = schedule();
  EXPECT_EQ(batch.preempted, Who{1});
  EXPECT_EQ(who(batch), Who{0});
  EXPECT_EQ(scheduler_->waiting(), 1U);
  EXPECT_EQ(scheduler_->accounts().lost_to_preemption, 32U);
  scheduler_->forward_ended();
  run_out();
  EXPECT_EQ(scheduler_->accounts().output, 80U);
  expect_closed();
}

TEST_F(SchedulerTest, AStepThatPreemptsLetsNobodyIn) {
  add(32, 40);
  add(32, 40);
  add(16, 1);
  start(112);
  ASSERT_TRUE(scheduler_->arrive(0).is_ok());
  ASSERT_TRUE(scheduler_->arrive(1).is_ok());
  for (int i = 0; i < 17; ++i) step();
  ASSERT_TRUE(scheduler_->arrive(2).is_ok());
  const Batch& batch = schedule();
  EXPECT_EQ(batch.preempted, Who{1});
  EXPECT_EQ(who(batch), Who{0});
  EXPECT_EQ(scheduler_->kv().free_pages(), 3U);  // the third would have fitted
}

TEST_F(SchedulerTest, APreemptedRequestFindsItsBlocksAgainAndComputesItsOutputsAgain) {
  add(32, 40);
  add(32, 40);
  start(112);
  arrive_all();
  for (int i = 0; i < 18; ++i) step();
  ASSERT_EQ(scheduler_->accounts().preemptions, 1U);
  run_out();
  EXPECT_EQ(scheduler_->accounts().cached_device, 32U);
  EXPECT_EQ(scheduler_->accounts().computed, 64U);
  EXPECT_EQ(scheduler_->accounts().recomputed_output, 16U);
  EXPECT_EQ(scheduler_->accounts().output, 80U);
  expect_closed();
}

TEST_F(SchedulerTest, APreemptedRequestComesBeforeThoseThatWait) {
  add(32, 40);
  add(32, 40);
  add(112, 1);  // does not fit before the others have ended
  start(112);
  arrive_all();
  for (int i = 0; i < 18; ++i) step();
  ASSERT_EQ(scheduler_->accounts().preemptions, 1U);
  for (int i = 0; i < 22; ++i) step();  // the first has its 40 tokens
  EXPECT_EQ(scheduler_->accounts().finished, 1U);
  EXPECT_EQ(who(schedule()), Who{1});
}

TEST_F(SchedulerTest, ComputedBlocksAreReportedOnceAndThePartialOneWithThePrompt) {
  options_.token_budget = 50;
  add(100, 3);
  start();
  arrive_all();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> reported;
  for (int i = 0; i < 5; ++i) {
    for (const ComputedBlocks& blocks : step().computed) {
      reported.emplace_back(blocks.first_block, blocks.count);
    }
  }
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> expected = {{0, 1}, {1, 3}};
  EXPECT_EQ(reported, expected);
}

TEST_F(SchedulerTest, RequestsThatCanNeverFitAreRejectedAndCounted) {
  add(100, 30);
  add(100, 29);
  start(128);
  const Status status = scheduler_->arrive(0);
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_NE(status.message().find("more devices"), std::string::npos) << status.message();
  EXPECT_TRUE(scheduler_->arrive(1).is_ok());
  EXPECT_EQ(scheduler_->accounts().rejected, 1U);
  run_out();
  EXPECT_EQ(scheduler_->accounts().output, 29U);
}

TEST_F(SchedulerTest, ARequestWithMoreKeysThanBlocksIsRejected) {
  add(64, 1);
  requests_[0].keys.resize(3);
  start();
  EXPECT_EQ(scheduler_->arrive(0).code(), Code::kInvalidArgument);
}

TEST_F(SchedulerTest, ARequestWithoutKeysIsComputedWhole) {
  add(64, 2);
  requests_[0].keys.clear();
  start();
  arrive_all();
  run_out();
  EXPECT_TRUE(external_.asked.empty());
  EXPECT_EQ(scheduler_->accounts().computed, 64U);
  expect_closed();
}

}  // namespace
}  // namespace kvstream
