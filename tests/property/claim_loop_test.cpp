// Thousands of random steps: how close to T* without faults, and what always holds with them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "property/claim_loop_run.hpp"

namespace kvstream::rig {
namespace {

std::uint64_t count_seeds() {
  return std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 20'000 : 2'000;
}

LoopTally run_seeds(const char* name, const LoopMode& mode) {
  LoopTally tally;
  const std::uint64_t seeds = count_seeds();
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_loop(seed, mode, tally);
  std::printf(
      "%s, seeds 1..%lu: T/T* mean %.3f p99 %.3f max %.2f; avoidable misses %lu of %lu; "
      "hedges %lu, overdue %lu, waits for a slab %lu\n",
      name, seeds, tally.mean(), tally.percentile(0.99), tally.percentile(1), tally.avoidable,
      tally.blocks, tally.hedges, tally.overdue, tally.slab_waits);
  return tally;
}

void expect_invariants(const LoopTally& tally) {
  EXPECT_EQ(tally.violations.twice, 0U) << "a block was reported twice";
  EXPECT_EQ(tally.violations.written_after, 0U) << "reported memory could still be written";
  EXPECT_EQ(tally.violations.wrong_bytes, 0U);
  EXPECT_EQ(tally.violations.early, 0U) << "end or drained came before its time";
  EXPECT_EQ(tally.stuck, 0U);
  EXPECT_EQ(tally.undrained, 0U) << "slabs, holds, windows or counters did not close";
}

LoopMode faulty() {
  LoopMode mode;
  mode.faults = mode.deadlines = mode.late_source = mode.forever = true;
  mode.true_rates = false;
  mode.latency_ms_max = 5;
  return mode;
}

TEST(ClaimLoop, IsCloseToTheLeastPossibleTime) {
  const LoopTally tally = run_seeds("fault-free", {});
  expect_invariants(tally);
  EXPECT_EQ(tally.hits, tally.blocks);
  EXPECT_LE(tally.mean(), 1.02);
  EXPECT_LE(tally.percentile(0.99), 1.25);
  EXPECT_LE(static_cast<double>(tally.hedges), 0.006 * static_cast<double>(tally.blocks));
}

TEST(ClaimLoop, StaysCloseWithClaimsOfFourBlocks) {
  LoopMode mode;
  mode.claim_blocks = 4;
  const LoopTally tally = run_seeds("claims of 4", mode);
  expect_invariants(tally);
  EXPECT_LE(tally.mean(), 1.04);
  EXPECT_LE(tally.percentile(0.99), 1.45);
}

TEST(ClaimLoop, StaysCloseWhenItBeginsWithWrongRates) {
  LoopMode mode;
  mode.true_rates = false;
  const LoopTally tally = run_seeds("prior rates wrong by up to e", mode);
  expect_invariants(tally);
  EXPECT_LE(tally.mean(), 1.06);
  EXPECT_LE(tally.percentile(0.99), 1.8);
}

TEST(ClaimLoop, LosesNothingThatASoundSourceHolds) {
  const LoopTally tally = run_seeds("faults, many slabs", faulty());
  expect_invariants(tally);
  EXPECT_EQ(tally.avoidable, 0U);
  EXPECT_GT(tally.overdue, 0U);
  EXPECT_GT(tally.hedges, 0U);
}

TEST(ClaimLoop, LosesNothingWithAsFewSlabsAsSources) {
  LoopMode mode = faulty();
  mode.few_slabs = true;
  const LoopTally tally = run_seeds("faults, one slab a source to 8", mode);
  expect_invariants(tally);
  EXPECT_EQ(tally.avoidable, 0U);
  EXPECT_GT(tally.slab_waits, 0U);
}

TEST(ClaimLoop, LosesNothingWhenPlacingIsSlowAndItsRingShort) {
  LoopMode mode = faulty();
  mode.few_slabs = mode.placing_takes_time = true;
  const LoopTally tally = run_seeds("faults, few slabs, slow placer", mode);
  expect_invariants(tally);
  EXPECT_EQ(tally.avoidable, 0U);
}

TEST(ClaimLoop, EndsByItselfWithoutADeadline) {
  LoopMode mode = faulty();
  mode.few_slabs = mode.placing_takes_time = true;
  mode.deadlines = mode.forever = false;
  const LoopTally tally = run_seeds("faults, few slabs, no deadline", mode);
  expect_invariants(tally);
  EXPECT_EQ(tally.avoidable, 0U);
}

TEST(ClaimLoop, HoldsItsPromisesUnderPoliciesThatChooseOneSource) {
  LoopMode mode = faulty();
  mode.adaptive = false;
  mode.few_slabs = mode.placing_takes_time = true;
  const LoopTally tally = run_seeds("one source a block, faults", mode);
  expect_invariants(tally);
  EXPECT_EQ(tally.hedges, 0U);
  EXPECT_LE(static_cast<double>(tally.avoidable), 2e-5 * static_cast<double>(tally.blocks));
}

TEST(ClaimLoop, MakesTheSameClaimsForTheSameSeed) {
  LoopMode mode = faulty();
  mode.few_slabs = mode.placing_takes_time = true;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    LoopTally first, second;
    const auto a = run_loop(seed, mode, first);
    const auto b = run_loop(seed, mode, second);
    ASSERT_EQ(a.size(), b.size()) << "seed " << seed;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].step, b[i].step) << "seed " << seed;
      ASSERT_EQ(a[i].block, b[i].block) << "seed " << seed;
      ASSERT_EQ(a[i].source, b[i].source) << "seed " << seed;
      ASSERT_EQ(a[i].hedge, b[i].hedge) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kvstream::rig
