// Where bytes land: direct only when nothing else can come, else in a slab; views need neither.
#include <gtest/gtest.h>

#include "step/dispatcher.hpp"
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
TEST(Landing, IsDirectOnlyWhenNoSecondSourceEverWas) {
  Rig rig(Specs{{1e9}, {1e9}});
  rig.begin(wish_of({{1}}, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters().direct_bytes, kBlockBytes);
  EXPECT_EQ(rig.dispatcher().counters().staged_bytes, 0U);
  rig.begin(wish_of({{2}}, 3));
  Wish with_spare = wish_of({{3}}, 1);
  with_spare.spares[3] = 2;
  rig.begin(with_spare);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters().direct_bytes, kBlockBytes);
  EXPECT_EQ(rig.dispatcher().counters().staged_bytes, 2 * kBlockBytes);
  expect_clean(rig);
}

TEST(Landing, IsStagedWhileARoundIsOpen) {
  Rig rig(Specs{{1e9}});
  Wish wish = wish_of({{1}}, 1);
  wish.round_open = true;
  rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters().direct_bytes, 0U);
  expect_clean(rig);
}

TEST(Landing, IsStagedWhenADestinationIsNotAligned) {
  Rig rig(Specs{{1e9}});
  rig.tiers[0]->traits().alignment_bytes = 4096;
  RigStep& step = rig.begin(wish_of({{1}}, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters().staged_bytes, kBlockBytes);
  EXPECT_EQ(step.count(BlockState::kHit), 1U);
  expect_clean(rig);
}

TEST(Landing, IsStagedForABlockThatSeveralRequestsWant) {
  Rig rig(Specs{{1e9}});
  RigStep& step = rig.begin(wish_of({{1}, {1}}, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters().direct_bytes, 0U);
  EXPECT_EQ(step.count(BlockState::kHit), 2U);
  expect_clean(rig);
}

TEST(Landing, CanBeChosen) {
  StepDispatcher::Options options;
  options.landing = Landing::kStaged;
  Rig staged(Specs{{1e9}}, options);
  staged.begin(wish_of({{1}}, 1));
  ASSERT_TRUE(staged.run_to_end());
  EXPECT_EQ(staged.dispatcher().counters().direct_bytes, 0U);
  expect_clean(staged);
  options.landing = Landing::kDirect;
  Rig direct(Specs{{1e9}, {1e9}}, options);
  direct.begin(wish_of({{1}}, 3));
  ASSERT_TRUE(direct.run_to_end());
  EXPECT_EQ(direct.dispatcher().counters().direct_bytes, kBlockBytes);
  expect_clean(direct);
}

TEST(Landing, IsStagedOnlyAfterTheFirstLateRead) {
  Rig rig(Specs{{1e9}});
  rig.tiers[0]->faults.stall_from = 0;
  rig.tiers[0]->faults.stall_for = 10 * kSecond;
  Wish wish = wish_of({{1}}, 1);
  wish.deadline = kSecond;
  RigStep& late = rig.begin(wish);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(late.outcomes[0][0].state, BlockState::kLate);
  EXPECT_EQ(late.drained, kNever) << "a device may still write there";
  const auto held = rig.dispatcher().held(late.id);
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0].data, late.memory[0][0].data);
  ASSERT_TRUE(rig.run([&] { return late.drained != kNever; }));
  EXPECT_GE(late.drained, 10 * kSecond);
  const std::uint64_t direct = rig.dispatcher().counters().direct_bytes;
  rig.begin(wish_of({{2}}, 1));
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.dispatcher().counters().direct_bytes, direct);
  expect_clean(rig);
}

TEST(Landing, FromAddressableTiersNeedsNoSlabButAPlaceInTheWindow) {
  Rig rig(Specs{{1e9}});
  rig.tiers[0]->traits().addressable = true;
  rig.placer.delay = kMillisecond;
  RigStep& step = rig.begin(wish_of({numbers(0, 9)}, 1));
  rig.turn();
  EXPECT_EQ(rig.pool.free_count(), rig.pool.count());
  EXPECT_EQ(rig.devices[0]->reads_in_flight(), 2U);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), 9U);
  EXPECT_EQ(rig.tiers[0]->reads, 0U);
  EXPECT_EQ(rig.dispatcher().counters(0).read_bytes, 9 * kBlockBytes);
  expect_clean(rig);
}

TEST(Landing, FromAddressableTiersIsVerifiedUnlessTheTierIsTrusted) {
  for (const bool trusted : {false, true}) {
    Rig rig(Specs{{1e9}, {1e8}});
    rig.tiers[0]->traits().addressable = true;
    rig.tiers[0]->traits().trusted = trusted;
    if (!trusted) rig.tiers[0]->faults.bad = 1;
    RigStep& step = rig.begin(wish_of({numbers(0, 3)}, 3));
    ASSERT_TRUE(rig.run_to_end());
    EXPECT_EQ(step.count(BlockState::kHit), 3U);
    EXPECT_EQ(rig.host.mismatches > 0, !trusted);
    expect_clean(rig);
  }
}

}  // namespace
}  // namespace kvstream::rig
