// One test for each rule of the claim loop that needs more than the board: who idles, who hedges,
// who is overdue, who gets the last slabs, whose turn it is.
#include <gtest/gtest.h>

#include "step/step_rig.hpp"

namespace kvstream::rig {
namespace {

using Specs = std::vector<Rig::SourceSpec>;
constexpr Nanos kBlockNs = 1'048'576;  // of a 1 MiB block at 1 GB/s

Wish wish_of(std::uint64_t from, std::uint64_t to, SourceMask sources) {
  Wish wish;
  for (std::uint64_t n = from; n < to; ++n) {
    wish.requests.push_back({n});
    wish.sources[n] = sources;
  }
  return wish;
}

void expect_clean(Rig& rig) {
  EXPECT_TRUE(rig.drain());
  EXPECT_EQ(rig.violations.twice, 0U);
  EXPECT_EQ(rig.violations.written_after, 0U);
  EXPECT_EQ(rig.violations.wrong_bytes, 0U);
  EXPECT_EQ(rig.violations.early, 0U);
}

TEST(Rule1, NoSourceIdlesWhileItCanServeAnUnreadBlock) {
  Rig rig(Specs{{1e9}, {1e9}, {1e9}});
  RigStep& step = rig.begin(wish_of(0, 90, 7));
  while (step.left > 12) {
    rig.turn();
    for (const auto& device : rig.devices) ASSERT_EQ(device->free_places(), 0U);
    rig.clock.set(rig.wake);
  }
  ASSERT_TRUE(rig.run_to_end());
  expect_clean(rig);
}

TEST(Rule4, WhatWasDeclinedIsLookedAtAgainOnATimer) {
  // Source 0 is the fast one and stalls without a word: source 1 first leaves the last blocks to
  // it, and takes them when its rate has decayed, long before they are overdue for good.
  Rig rig(Specs{{1e9}, {2e8}});
  rig.begin(wish_of(0, 100, 3));
  ASSERT_TRUE(rig.run_to_end());
  rig.tiers[0]->faults.stall_from = rig.clock.now();
  rig.tiers[0]->faults.stall_for = 1000 * kSecond;
  RigStep& step = rig.begin(wish_of(100, 108, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 8U);
  EXPECT_LT(step.ended - step.began, 250 * kMillisecond);
  expect_clean(rig);
}

TEST(Rule5, AnIdleSourceReadsAgainWhatTheOwnerWillEndTooLate) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.begin(wish_of(0, 100, 3));
  ASSERT_TRUE(rig.run_to_end());
  rig.tiers[1]->faults.slow_at = rig.clock.now();
  rig.tiers[1]->faults.slow = 0.01;
  RigStep& step = rig.begin(wish_of(100, 140, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 40U);
  EXPECT_GT(rig.dispatcher().counters(0).hedges, 0U);
  EXPECT_LT(step.ended - step.began, 60 * kBlockNs);
  expect_clean(rig);
  EXPECT_EQ(rig.dispatcher().counters().hits, 140U);
}

TEST(Rule5, DoesNotHedgeWhenToldNotTo) {
  StepDispatcher::Options options;
  options.hedge = false;
  Rig rig(Specs{{1e9}, {1e9}}, options);
  rig.tiers[1]->faults.slow_at = 0;
  rig.tiers[1]->faults.slow = 0.01;
  rig.begin(wish_of(0, 40, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters(0).hedges, 0U);
  expect_clean(rig);
}

TEST(Rule5, NeverHedgesADirectRead) {
  StepDispatcher::Options options;
  options.landing = Landing::kDirect;
  Rig rig(Specs{{1e9}, {1e9}}, options);
  rig.tiers[1]->faults.slow_at = 0;
  rig.tiers[1]->faults.slow = 0.01;
  rig.begin(wish_of(0, 40, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters(0).hedges, 0U);
  EXPECT_EQ(rig.tiers[0]->reads + rig.tiers[1]->reads, 40U);
  expect_clean(rig);
}

TEST(Rule6, AnOverdueClaimIsUnreadAgainAndItsSourceClaimsNothing) {
  StepDispatcher::Options options;
  options.hedge = false;
  Rig rig(Specs{{1e9, 20 * kMillisecond}, {1e8}}, options);
  rig.begin(wish_of(1000, 1200, 1));  // its window grows to some twenty blocks
  ASSERT_TRUE(rig.run_to_end());
  const Nanos from = rig.clock.now();
  rig.tiers[0]->faults.stall_from = from;
  rig.tiers[0]->faults.stall_for = 3 * kSecond;
  RigStep& step = rig.begin(wish_of(0, 10, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 10U);
  EXPECT_GE(rig.dispatcher().counters(0).overdue, 1U);
  EXPECT_LT(step.ended - from, kSecond);
  // A step that only the stalled source can serve waits for it, without a further claim.
  ASSERT_GT(rig.devices[0]->free_places(), 0U);
  const std::uint64_t reads = rig.tiers[0]->reads;
  RigStep& other = rig.begin(wish_of(20, 22, 1));
  rig.run([] { return false; }, from + 2 * kSecond);
  EXPECT_EQ(rig.tiers[0]->reads, reads);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(other.count(BlockState::kHit), 2U);
  EXPECT_GT(other.ended, from + 3 * kSecond);
  expect_clean(rig);
}

TEST(Rule6, NoMissIsDeclaredWhileAReadOfTheKeyIsOut) {
  // The fast source stalls, the other one only fails: the stalled read still wins.
  Rig rig(Specs{{1e9}, {1e8}});
  rig.tiers[0]->faults.stall_from = 0;
  rig.tiers[0]->faults.stall_for = 3 * kSecond;
  rig.tiers[1]->faults.error = 1;
  RigStep& step = rig.begin(wish_of(0, 2, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 2U);
  EXPECT_GE(step.ended, 3 * kSecond);
  EXPECT_GT(rig.tiers[1]->reads, 0U);
  expect_clean(rig);
}

TEST(Rule6, WorksForWaitersWhenTheOwnerWasCancelled) {
  StepDispatcher::Options options;
  options.hedge = false;
  Rig rig(Specs{{1e9}, {1e8}}, options);
  rig.tiers[0]->faults.stall_from = 0;
  rig.tiers[0]->faults.stall_for = 1000 * kSecond;
  RigStep& owner = rig.begin(wish_of(0, 1, 3));
  rig.turn();
  RigStep& waiter = rig.begin(wish_of(0, 1, 3));
  rig.turn();
  rig.dispatcher().cancel(owner.id, 0);
  ASSERT_TRUE(rig.run([&] { return waiter.left == 0; }));
  EXPECT_EQ(waiter.count(BlockState::kHit), 1U);
  EXPECT_LT(waiter.ended, kSecond);
  expect_clean(rig);
}

TEST(Rule6, FreesBlocksThatAPolicyGaveToAStalledSource) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.tiers[0]->faults.stall_from = 0;
  rig.tiers[0]->faults.stall_for = 1000 * kSecond;
  Wish wish = wish_of(0, 20, 1);
  for (std::uint64_t n = 0; n < 20; ++n) wish.spares[n] = 2;
  wish.adaptive = false;
  RigStep& step = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 20U);
  EXPECT_LT(step.ended, kSecond);
  expect_clean(rig);
}

TEST(Slabs, OneStaysFreeForEachSourceThatHasNone) {
  Rig rig(Specs{{1e9}, {1e9}, {1e9}}, {}, 4);
  for (int s : {0, 1}) {
    rig.tiers[static_cast<std::size_t>(s)]->faults.stall_from = 0;
    rig.tiers[static_cast<std::size_t>(s)]->faults.stall_for = 1000 * kSecond;
  }
  RigStep& step = rig.begin(wish_of(0, 30, 7));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 30U);
  expect_clean(rig);
}

TEST(Slabs, ASourceHoldsAtMostHalfOfThem) {
  Rig rig(Specs{{1e9, 100 * kMillisecond}}, {}, 8);
  StepDispatcher::Options options;
  Wish wish = wish_of(0, 60, 1);
  for (std::uint64_t n = 0; n < 60; ++n) wish.requests.push_back({n});  // twice: staged
  rig.begin(wish);
  std::uint32_t least = 8;
  while (!rig.all_ended()) {
    rig.turn();
    least = std::min(least, rig.pool.free_count());
    rig.clock.set(std::min(rig.wake, rig.clock.now() + kSecond));
  }
  EXPECT_EQ(least, 4U);
  EXPECT_GT(rig.dispatcher().counters().waits_for_slab, 0U);
  expect_clean(rig);
}

TEST(Slabs, WantOfThemNeverMakesALandingDirect) {
  Rig rig(Specs{{1e9}, {1e9}}, {}, 2);
  RigStep& step = rig.begin(wish_of(0, 30, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 30U);
  EXPECT_EQ(rig.dispatcher().counters().direct_bytes, 0U);
  expect_clean(rig);
}

TEST(Slabs, AClaimOfManyBlocksShrinksToWhatIsThere) {
  StepDispatcher::Options options;
  options.claim_blocks = 8;
  Rig rig(Specs{{1e9, 20 * kMillisecond}, {1e9}}, options, 4);
  RigStep& step = rig.begin(wish_of(0, 40, 3));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 40U);
  expect_clean(rig);
}

TEST(Window, IsSharedByAllSteps) {
  Rig rig(Specs{{1e9}});
  for (std::uint64_t i = 0; i < 10; ++i) rig.begin(wish_of(i * 10, i * 10 + 10, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.tiers[0]->peak, 2U);
  expect_clean(rig);
}

TEST(Window, CountsTheWritesOfTheDevice) {
  Rig rig(Specs{{1e9, 0, 1, 2}});  // two operations at most
  rig.devices[0]->on_submit(Device::Kind::kWrite, kBlockBytes, 0);
  rig.devices[0]->on_submit(Device::Kind::kWrite, kBlockBytes, 0);
  RigStep& step = rig.begin(wish_of(0, 3, 1));
  rig.turn();
  EXPECT_EQ(rig.tiers[0]->reads, 0U);
  EXPECT_TRUE(rig.dispatcher().reads_wait(0));
  EXPECT_FALSE(rig.devices[0]->write_credit_covers(1));
  rig.devices[0]->on_complete(Device::Kind::kWrite, kBlockBytes, 0, true, 1);
  rig.devices[0]->on_complete(Device::Kind::kWrite, kBlockBytes, 0, true, 1);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 3U);
  EXPECT_FALSE(rig.dispatcher().reads_wait(0));
  EXPECT_TRUE(rig.devices[0]->write_credit_covers(1));
  expect_clean(rig);
}

TEST(Window, GrowsToAFarDevicesNeedInAFewRounds) {
  Rig rig(Specs{{2e9, 32 * kMillisecond, 1, 4096}}, {}, 4096);
  RigStep& step = rig.begin(wish_of(0, 2000, 1));
  ASSERT_TRUE(rig.run([&] { return rig.tiers[0]->peak >= 64; }));
  EXPECT_LE(rig.clock.now(), 250 * kMillisecond);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 2000U);
  // 2 GB/s for 32 ms are 61 blocks; twice that is the window.
  EXPECT_LE(rig.tiers[0]->peak, 140U);
  expect_clean(rig);
}

}  // namespace
}  // namespace kvstream::rig
