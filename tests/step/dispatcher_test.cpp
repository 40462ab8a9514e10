// Steps from begin() to drained: holes, retries, deadlines, cancel, shared keys, rounds, gates.
#include "step/dispatcher.hpp"

#include <gtest/gtest.h>

#include "step/step_rig.hpp"

namespace kvstream::rig {
namespace {

Wish wish_of(std::vector<std::vector<std::uint64_t>> requests, SourceMask sources) {
  Wish wish;
  wish.requests = std::move(requests);
  for (const auto& request : wish.requests)
    for (std::uint64_t number : request) wish.sources[number] = sources;
  return wish;
}

std::vector<std::uint64_t> numbers(std::uint64_t from, std::uint64_t to) {
  std::vector<std::uint64_t> list;
  for (std::uint64_t n = from; n < to; ++n) list.push_back(n);
  return list;
}

void expect_clean(Rig& rig) {
  EXPECT_TRUE(rig.drain());
  EXPECT_EQ(rig.violations.twice, 0U);
  EXPECT_EQ(rig.violations.written_after, 0U);
  EXPECT_EQ(rig.violations.wrong_bytes, 0U);
  EXPECT_EQ(rig.violations.early, 0U);
}

using Specs = std::vector<Rig::SourceSpec>;
constexpr Nanos kBlockNs = 1'048'576;  // of a 1 MiB block at 1 GB/s

TEST(Dispatcher, ReportsEveryBlockOfEveryRequestOnceWithItsBytes) {
  Rig rig(Specs{{1e9}, {5e8}});
  RigStep& step = rig.begin(wish_of({numbers(0, 10), numbers(5, 15), {3}}, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 21U);
  EXPECT_EQ(rig.tiers[0]->reads + rig.tiers[1]->reads, 15U) << "a key is read once for all";
  EXPECT_EQ(step.ended, step.drained);
  EXPECT_EQ(rig.dispatcher().counters().requested, 21U);
  EXPECT_EQ(rig.dispatcher().counters().hits, 21U);
  expect_clean(rig);
}

TEST(Dispatcher, ReportsThePlannedMissesBeforeBeginReturns) {
  Rig rig(Specs{{1e9}});
  auto step = std::make_shared<RigStep>(rig, 1);
  StepPlan plan = rig.plan_of(wish_of({numbers(0, 2)}, 1), *step);
  plan.requests[0].count_blocks = 4;
  plan.requests[0].miss_reason = MissReason::kNotFound;
  step->outcomes[0].resize(4);
  step->reported_at[0].resize(4);
  step->memory[0].resize(4);
  step->left = 4;
  rig.steps.push_back(step);
  ASSERT_TRUE(rig.dispatcher().begin(std::move(plan), step, 0).has_value());
  EXPECT_EQ(step->left, 2U);
  EXPECT_EQ(step->outcomes[0][2].reason, MissReason::kNotFound);
  EXPECT_EQ(step->outcomes[0][3].reason, MissReason::kBehindAHole);
  ASSERT_TRUE(rig.run_to_end());
  expect_clean(rig);
}

TEST(Dispatcher, AStepOfNothingEndsAtOnce) {
  Rig rig(Specs{{1e9}});
  RigStep& step = rig.begin(Wish{});
  EXPECT_EQ(step.ended, 0);
  EXPECT_EQ(step.drained, 0);
  expect_clean(rig);
}

TEST(Dispatcher, RefusesMoreStepsThanItsBoundAndGivesTheirHoldsBack) {
  StepDispatcher::Options options;
  options.steps_max = 2;
  Rig rig(Specs{{1e9}}, options);
  rig.begin(wish_of({{1}}, 1));
  rig.begin(wish_of({{2}}, 1));
  auto step = std::make_shared<RigStep>(rig, 1);
  const auto refused = rig.dispatcher().begin(rig.plan_of(wish_of({{3}}, 1), *step), step, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kOverloaded);
  EXPECT_EQ(rig.host.holds, 2);
  ASSERT_TRUE(rig.run_to_end());
  expect_clean(rig);
}

TEST(Dispatcher, RefusesABlockThatNoSlabCouldTake) {
  Rig rig(Specs{{1e9}});
  auto step = std::make_shared<RigStep>(rig, 1);
  Wish wish = wish_of({{1}}, 1);
  wish.block_bytes = 8192;
  const auto refused = rig.dispatcher().begin(rig.plan_of(wish, *step), step, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(rig.host.holds, 0);
}

TEST(Retry, AnErrorOrBadBytesGoToAnotherReplica) {
  for (const bool bad : {false, true}) {
    Rig rig(Specs{{1e9}, {1e8}});
    (bad ? rig.tiers[0]->faults.bad : rig.tiers[0]->faults.error) = 1;
    RigStep& step = rig.begin(wish_of({numbers(0, 8)}, 3));
    ASSERT_TRUE(rig.run_to_end());
    EXPECT_EQ(step.count(BlockState::kHit), 8U);
    for (const BlockOutcome& outcome : step.outcomes[0]) EXPECT_EQ(outcome.source, 1);
    EXPECT_EQ(rig.host.mismatches > 0, bad);
    EXPECT_EQ(rig.dispatcher().counters(0).corrupt > 0, bad);
    EXPECT_EQ(rig.dispatcher().counters(0).errors > 0, !bad);
    expect_clean(rig);
  }
}

TEST(Retry, TakesASpareWhenThePolicyChoseOneSource) {
  Rig rig(Specs{{1e9}, {1e8}});
  rig.tiers[0]->faults.error = 1;
  Wish wish = wish_of({numbers(0, 5)}, 1);
  for (std::uint64_t n = 0; n < 5; ++n) wish.spares[n] = 2;
  wish.adaptive = false;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 5U);
  expect_clean(rig);
}

TEST(Holes, TakeUnreadBlocksBehindThemOffTheBoard) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.tiers[1]->faults.error = 1;
  Wish wish = wish_of({numbers(0, 20)}, 1);
  wish.sources[3] = 2;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.outcomes[0][3].reason, MissReason::kAllFailed);
  EXPECT_EQ(step.outcomes[0][19].reason, MissReason::kBehindAHole);
  for (std::size_t p = 0; p < 3; ++p) EXPECT_EQ(step.outcomes[0][p].state, BlockState::kHit);
  EXPECT_LE(rig.tiers[0]->reads, 6U) << "what is useless was read";
  expect_clean(rig);
}

TEST(Holes, LeaveBlocksToOtherRequestsThatStillWantThem) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.tiers[1]->faults.error = 1;
  // Request 0: block 0 fails, 1..9 are useless to it; request 1 wants 5..9 first, then 1.
  Wish wish = wish_of({numbers(0, 10), {5, 6, 7, 8, 9, 1}}, 1);
  wish.sources[0] = 2;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.outcomes[0][0].reason, MissReason::kAllFailed);
  EXPECT_EQ(step.outcomes[0][9].reason, MissReason::kBehindAHole);
  for (const BlockOutcome& outcome : step.outcomes[1]) EXPECT_EQ(outcome.state, BlockState::kHit);
  expect_clean(rig);
}

TEST(Deadline, MakesStagedBlocksMissesAndDirectOnesLate) {
  Rig rig(Specs{{1e9}, {1e9}});
  for (auto& tier : rig.tiers) {
    tier->faults.stall_from = 0;
    tier->faults.stall_for = 100 * kSecond;
  }
  Wish wish = wish_of({{1}, {2}, {3}}, 3);
  wish.sources[1] = 1;
  wish.deadline = 50 * kMillisecond;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.ended, 50 * kMillisecond);
  EXPECT_EQ(step.outcomes[0][0].state, BlockState::kLate);
  EXPECT_EQ(step.outcomes[1][0].reason, MissReason::kDeadline);
  EXPECT_EQ(step.drained, kNever);
  expect_clean(rig);
  EXPECT_NE(step.drained, kNever);
}

TEST(Deadline, LetsACopyThatHasBegunEnd) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.placer.delay = 20 * kMillisecond;
  Wish wish = wish_of({{1}, {2}}, 3);
  wish.deadline = 2 * kBlockNs;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 2U);
  EXPECT_GT(step.ended, wish.deadline);
  expect_clean(rig);
}

TEST(Cancel, EndsAStepInOneTurnAndNamesWhatIsHeld) {
  Rig rig(Specs{{1e9}, {1e9}});
  Wish wish = wish_of({{1}, {2}, {3}, {4}}, 3);
  wish.sources[1] = 1;
  for (std::uint64_t n = 2; n <= 4; ++n) wish.spares[n] = 1, wish.sources[n] = 2;
  RigStep& step = rig.begin(wish);
  rig.turn();
  rig.dispatcher().cancel(step.id, 0);
  EXPECT_EQ(step.left, 0U);
  EXPECT_EQ(step.count(BlockState::kCancelled), 4U);
  EXPECT_EQ(rig.dispatcher().held(step.id).size(), 1U);
  EXPECT_EQ(step.drained, kNever);
  ASSERT_TRUE(rig.run([&] { return step.drained != kNever; }));
  EXPECT_TRUE(rig.dispatcher().held(step.id).empty());
  expect_clean(rig);
}

TEST(Cancel, LeavesTheHoldOfAReplicaThatIsStillBeingRead) {
  Rig rig(Specs{{1e9}, {1e9}});
  RigStep& step = rig.begin(wish_of({{1}}, 3));
  rig.turn();
  EXPECT_EQ(rig.host.holds, 2);
  rig.dispatcher().cancel(step.id, 0);
  EXPECT_NE(step.drained, kNever) << "the read has only its slab left";
  EXPECT_EQ(rig.host.holds, 1);
  ASSERT_TRUE(rig.run([&] { return rig.dispatcher().idle(); }));
  EXPECT_EQ(rig.host.holds, 0);
  expect_clean(rig);
}

TEST(Cancel, WaitsForCopiesThatHaveBegun) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.placer.delay = kMillisecond;
  RigStep& step = rig.begin(wish_of({{1}}, 3));
  ASSERT_TRUE(rig.run([&] { return rig.placer.submitted == 1; }));
  rig.dispatcher().cancel(step.id, rig.clock.now());
  EXPECT_EQ(step.left, 1U);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kCancelled), 1U);
  EXPECT_EQ(step.ended, step.drained);
  expect_clean(rig);
}

TEST(SameKey, IsReadOnceForTwoStepsAndOutlivesTheOwner) {
  Rig rig(Specs{{1e9, 10 * kMillisecond}, {1e9, 10 * kMillisecond}});
  RigStep& owner = rig.begin(wish_of({{1}}, 3));
  rig.turn();
  RigStep& waiter = rig.begin(wish_of({{1}}, 3));
  rig.turn();
  EXPECT_EQ(rig.devices[0]->reads_in_flight() + rig.devices[1]->reads_in_flight(), 1U)
      << "a waiter takes no place";
  rig.dispatcher().cancel(owner.id, 0);
  EXPECT_EQ(owner.drained, 0);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(waiter.count(BlockState::kHit), 1U);
  EXPECT_EQ(rig.tiers[0]->reads + rig.tiers[1]->reads, 1U);
  EXPECT_EQ(rig.dispatcher().counters().joined, 1U);
  expect_clean(rig);
}

TEST(SameKey, ThatFailsForTheOwnerIsReadElsewhereForBoth) {
  Rig rig(Specs{{1e9, kMillisecond}, {1e8, kMillisecond}});
  rig.tiers[0]->faults.error = 1;
  RigStep& first = rig.begin(wish_of({{1}}, 3));
  rig.turn();
  RigStep& second = rig.begin(wish_of({{1}}, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(first.count(BlockState::kHit), 1U);
  EXPECT_EQ(second.count(BlockState::kHit), 1U);
  EXPECT_EQ(rig.tiers[1]->reads, 1U);
  expect_clean(rig);
}

TEST(SameKey, ThatLandsDirectForOneStepIsReadAgainForTheOther) {
  Rig rig(Specs{{1e9}});
  RigStep& first = rig.begin(wish_of({{1}}, 1));
  rig.turn();
  RigStep& second = rig.begin(wish_of({{1}}, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(first.count(BlockState::kHit), 1U);
  EXPECT_EQ(second.count(BlockState::kHit), 1U);
  expect_clean(rig);
}

TEST(Round, DeclaresNoMissBeforeItEnds) {
  Rig rig(Specs{{1e9}, {1e9}});
  Wish wish = wish_of({{1}, {2}}, 0);
  wish.round_open = true;
  RigStep& step = rig.begin(wish);
  rig.turn();
  EXPECT_EQ(step.left, 2U);
  rig.add_replica(step, 1, 0);
  rig.dispatcher().round_ended(step.id, 0);
  EXPECT_EQ(step.outcomes[1][0].reason, MissReason::kNotFound);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.outcomes[0][0].state, BlockState::kHit);
  expect_clean(rig);
}

TEST(Round, ReadsBlocksBehindAnOpenQuestionLast) {
  Rig rig(Specs{{1e9}});
  Wish wish = wish_of({{10, 11, 12}, {20, 21}}, 1);
  wish.sources.erase(10);
  wish.round_open = true;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run([&] { return step.left == 1; }));
  EXPECT_LT(step.reported_at[1][1], step.reported_at[0][1]);
  rig.add_replica(step, 10, 0);
  rig.dispatcher().round_ended(step.id, rig.clock.now());
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 5U);
  expect_clean(rig);
}

TEST(Round, AnAnswerThatComesAfterTheStepGivesItsHoldBack) {
  Rig rig(Specs{{1e9}});
  RigStep& step = rig.begin(wish_of({{1}}, 1));
  ASSERT_TRUE(rig.run_to_end());
  rig.add_replica(step, 1, 0);
  EXPECT_EQ(rig.host.holds, 0);
}

TEST(Gate, OfSerialReadsOneRequestAfterTheOther) {
  Rig rig(Specs{{1e9}});
  Wish wish = wish_of({{1, 2, 3}, {4, 5}, {6}}, 1);
  wish.gate = Gate::kRequest;
  wish.adaptive = false;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_LT(step.reported_at[0][2], step.reported_at[1][0]);
  EXPECT_GE(step.reported_at[1][0] - step.reported_at[0][2], kBlockNs - 1);
  EXPECT_GE(step.reported_at[2][0] - step.reported_at[1][1], kBlockNs - 1);
  EXPECT_EQ(rig.tiers[0]->peak, 2U);
  expect_clean(rig);
}

TEST(Gate, OfDepthOneHasOneBlockInFlight) {
  Rig rig(Specs{{1e9}, {1e9}});
  Wish wish = wish_of({{1, 2, 3}, {4, 5}}, 3);
  wish.gate = Gate::kBlock;
  wish.adaptive = false;
  rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.tiers[0]->peak, 1U);
  EXPECT_EQ(rig.tiers[1]->peak, 0U);
  expect_clean(rig);
}

TEST(Gate, LetsTheNextRequestInAfterAHole) {
  Rig rig(Specs{{1e9}});
  rig.tiers[0]->faults.error = 1;
  Wish wish = wish_of({{1, 2, 3}, {4}}, 1);
  wish.gate = Gate::kRequest;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kMiss), 4U);
  expect_clean(rig);
}

TEST(Liveness, ADeadSourceGivesItsReadsAndItsBlocksAway) {
  Rig rig(Specs{{1e9}, {1e8}});
  rig.tiers[0]->faults.stall_from = 0;
  rig.tiers[0]->faults.stall_for = 100 * kSecond;
  Wish wish = wish_of({numbers(0, 6)}, 3);
  wish.sources[5] = 1;
  RigStep& step = rig.begin(wish);
  rig.turn();
  rig.dispatcher().set_live(0, false, 0);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 5U);
  EXPECT_EQ(step.outcomes[0][5].reason, MissReason::kSourcesLost);
  EXPECT_LT(step.ended, kSecond);
  expect_clean(rig);
}

TEST(Liveness, ASourceThatComesBackServesAgain) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.dispatcher().set_live(0, false, 0);
  rig.dispatcher().set_live(0, true, 0);
  RigStep& step = rig.begin(wish_of({{1}}, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 1U);
  expect_clean(rig);
}

TEST(Dispatcher, OffersAgainWhatATierDidNotTake) {
  Rig rig(Specs{{1e9}});
  rig.tiers[0]->take_max = 1;
  RigStep& step = rig.begin(wish_of({numbers(0, 20)}, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 20U);
  EXPECT_EQ(rig.tiers[0]->peak, 1U);
  expect_clean(rig);
}

TEST(Dispatcher, RecordsWhatEachStepReadAndFromWhere) {
  Rig rig(Specs{{1e9}, {5e8}});
  rig.begin(wish_of({numbers(0, 10)}, 3));
  ASSERT_TRUE(rig.run_to_end());
  const auto records = rig.dispatcher().take_records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].blocks.size(), 10U);
  EXPECT_GE(records[0].reads.size(), 10U);
  for (const auto& block : records[0].blocks) {
    EXPECT_TRUE(block.hit);
    EXPECT_EQ(block.sources, 3U);
    EXPECT_EQ(block.size_bytes, kBlockBytes);
  }
  EXPECT_EQ(records[0].ended_at, rig.steps[0]->ended);
  EXPECT_TRUE(rig.dispatcher().take_records().empty());
  expect_clean(rig);
}

}  // namespace
}  // namespace kvstream::rig
