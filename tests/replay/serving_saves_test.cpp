// What the serving loop saves, and who waits for it.
#include <gtest/gtest.h>

#include <set>

#include "replay/serving_rig.hpp"

namespace kvstream {
namespace {

TEST_F(ServingLoopTest, DeferredWritesHoldUpNeitherAnswersNorSteps) {
  add(100, 2);
  open();
  go_on();
  EXPECT_TRUE(loop_->done());
  const RankRun run = loop_->take_run();
  EXPECT_NEAR(run.e2e_s.at(0), 0.2, 1e-9);
  EXPECT_NEAR(run.write_wait_s, 0, 1e-9);
  ASSERT_EQ(engine().saves.size(), 1U);
  EXPECT_EQ(engine().saves[0]->keys_, requests_[0].keys);
  EXPECT_FALSE(engine().saves[0]->done_);
}

TEST_F(ServingLoopTest, InlineWritesEndBeforeTheAnswer) {
  mode_.writes = WriteTiming::kInline;
  add(100, 2);
  open();
  go_on();
  EXPECT_EQ(clock_.now(), begun_ + 100 * kMs);
  ASSERT_EQ(engine().saves.size(), 1U);
  engine().saves[0]->staged_ = true;
  EXPECT_EQ(act_at(400 * kMs), kNever) << "staged is not written";
  engine().saves[0]->done_ = true;
  act_at(500 * kMs);
  const RankRun run = play_out();
  EXPECT_NEAR(run.ttft_s.at(0), 0.5, 1e-9);
  EXPECT_NEAR(run.e2e_s.at(0), 0.6, 1e-9);
  EXPECT_NEAR(run.write_wait_s, 0.4, 1e-9);
}

TEST_F(ServingLoopTest, WritesAfterThePassHoldUpTheNextStepButNotTheAnswer) {
  mode_.writes = WriteTiming::kAfterForward;
  add(100, 2);
  open();
  go_on();
  EXPECT_EQ(clock_.now(), begun_ + 100 * kMs);
  EXPECT_EQ(act_at(500 * kMs), kNever);
  engine().settle(0);
  act_at(600 * kMs);
  const RankRun run = play_out();
  EXPECT_NEAR(run.ttft_s.at(0), 0.1, 1e-9);
  EXPECT_NEAR(run.e2e_s.at(0), 0.7, 1e-9);
  EXPECT_NEAR(run.write_wait_s, 0.5, 1e-9);
}

TEST_F(ServingLoopTest, WritesAfterTheLastPassAreInTheMakespan) {
  mode_.writes = WriteTiming::kAfterForward;
  add(100, 1);
  open();
  go_on();
  EXPECT_FALSE(loop_->done());
  clock_.set(begun_ + kSecond);
  engine().settle(0);
  const RankRun run = play_out();
  EXPECT_NEAR(run.elapsed_s, 1.0, 1e-9);
  EXPECT_NEAR(run.e2e_s.at(0), 0.1, 1e-9);
}

TEST_F(ServingLoopTest, WaitedForSavesAreOfferedInPartsTwoUnderWay) {
  for (const WriteTiming timing : {WriteTiming::kInline, WriteTiming::kAfterForward}) {
    mode_.writes = timing;
    options_.waited_save_bytes = 4 * options_.block_bytes_max;  // parts of two blocks
    requests_.clear();
    engines_.clear();
    add(320, 1);
    open();
    for (std::size_t part = 0; part < 5; ++part) {
      go_on();
      ASSERT_EQ(engine().saves.size(), std::min<std::size_t>(5, part + 2)) << "part " << part;
      EXPECT_EQ(engine().saves[part]->keys_.size(), 2U);
      engine().settle(part);
    }
    std::vector<BlockKey> saved;
    for (const auto& save : engine().saves) {
      saved.insert(saved.end(), save->keys_.begin(), save->keys_.end());
    }
    EXPECT_EQ(saved, requests_[0].keys);
    play_out();
  }
}

TEST_F(ServingLoopTest, ABlockThatTwoRequestsOfAStepComputeIsSavedOnce) {
  requests_.push_back(prompt_of(96, 1, kBlock, 1, 7, 2));
  requests_.push_back(prompt_of(96, 1, kBlock, 2, 7, 2));
  open();
  play_out();
  std::multiset<BlockKey> saved;
  for (const auto& save : engine().saves) saved.insert(save->keys_.begin(), save->keys_.end());
  EXPECT_EQ(saved.size(), 4U);
  for (const BlockKey& key : saved) EXPECT_EQ(saved.count(key), 1U);
}

TEST_F(ServingLoopTest, WhatWasLoadedIsNotSavedAndWhatALoadLostIs) {
  store(add(128, 1), 3);
  open();
  act();
  engine().lose(0, 1);
  play_out();
  std::set<BlockKey> saved;
  for (const auto& save : engine().saves) saved.insert(save->keys_.begin(), save->keys_.end());
  const auto& keys = requests_[0].keys;
  EXPECT_EQ(saved, (std::set<BlockKey>{keys[1], keys[2], keys[3]}));
}

TEST_F(ServingLoopTest, AChunkedPromptIsSavedAsItsBlocksBecomeWhole) {
  options_.scheduler.token_budget = 40;
  add(100, 1);
  open();
  play_out();
  std::vector<std::size_t> counts;
  std::vector<BlockKey> saved;
  for (const auto& save : engine().saves) {
    counts.push_back(save->keys_.size());
    saved.insert(saved.end(), save->keys_.begin(), save->keys_.end());
  }
  EXPECT_EQ(counts, (std::vector<std::size_t>{1, 1, 2}));
  EXPECT_EQ(saved, requests_[0].keys);
}

TEST_F(ServingLoopTest, NothingIsSavedWithoutReplication) {
  mode_.replication = Replication::kNone;
  add(100, 1);
  open();
  play_out();
  EXPECT_EQ(engine().saves.size(), 0U);
}

TEST_F(ServingLoopTest, MemoryOfASaveIsNotUsedAgainBeforeItIsStaged) {
  options_.in_system_max = 1;
  for (int i = 0; i < 30; ++i) add(64, 1);
  open();
  for (int i = 0; i < 30 && !loop_->done(); ++i) go_on();
  std::set<const std::byte*> slabs;
  std::size_t blocks = 0;
  for (const auto& save : engine().saves) {
    for (const auto& from : save->from_) slabs.insert(from.data);
    blocks += save->from_.size();
  }
  EXPECT_GT(blocks, 10U);
  EXPECT_EQ(slabs.size(), blocks) << "a slab that was not staged was taken again";
}

TEST_F(ServingLoopTest, DeferredSavesThatAreNeverStagedHoldUpTheLoopOnlyWhenMemoryIsUsedUp) {
  options_.in_system_max = 1;
  options_.scheduler.kv.capacity_tokens = 512;
  options_.scheduler.token_budget = 512;
  options_.scheduler.sequences_max = 2;
  for (int i = 0; i < 100; ++i) add(256, 1);
  open();
  go_on();
  EXPECT_FALSE(loop_->done());
  const RankRun run = play_out();
  EXPECT_EQ(run.requests, 100U);
}

TEST_F(ServingLoopTest, EveryShardSavesItsOwnPartOfEachBlock) {
  add(100, 1);
  open(3);
  play_out();
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    ASSERT_EQ(engine(shard).saves.size(), 1U);
    EXPECT_EQ(engine(shard).saves[0]->keys_, of_shard_[shard][0].keys);
  }
}

}  // namespace
}  // namespace kvstream
