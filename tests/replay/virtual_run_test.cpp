// What a job under virtual time takes, on cases that can be reckoned.
#include "replay/virtual_run.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "replay/virtual_rig.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

constexpr double kFast = 400, kSlow = 100;  // blocks per second

/// One request of 400 blocks that lie in both tiers; nothing else takes time.
class BigStep : public testing::Test {
 protected:
  void SetUp() override {
    options_ = virtual_options();
    options_.copies = {64, 0, 0};
    options_.settings.pool_bytes = 1024ULL * kVirtualBlockBytes;
    options_.settings.record_steps = true;
    options_.serving.scheduler.kv.capacity_tokens = 1 << 16;
    options_.serving.scheduler.token_budget = 1 << 15;
    options_.tiers = {virtual_tier("nvme", Visibility::kNode, 800, kFast),
                      virtual_tier("pfs", Visibility::kJob, 800, kSlow)};
    requests_ = {prompt_of(400 * kVirtualBlockTokens, 1, kVirtualBlockTokens, 1)};
    requests_[0].sizes_bytes.assign(400, kVirtualBlockBytes);
    work_ = prepare_virtual(options_, requests_, requests_, Replication::kAll);
  }
  double read_s(ReadPolicy policy, std::vector<std::string> tiers = {}) {
    Mode mode;
    mode.policy = policy;
    mode.use_tiers = std::move(tiers);
    mode.replication = Replication::kNone;
    VirtualOutcome outcome = play_or_die(options_, work_, mode);
    EXPECT_EQ(outcome.engines.at(0).hits, 400U);
    last_ = json_of(options_, std::move(outcome));
    EXPECT_TRUE(last_.at("checks").at("accounts_closed")) << last_.at("checks").dump();
    return last_.at("step_read_s").at("mean");
  }

  VirtualOptions options_;
  std::vector<TraceRequest> requests_;
  VirtualWork work_;
  json last_;
};

TEST_F(BigStep, OneTierAloneTakesItsBytesOverItsRate) {
  EXPECT_NEAR(read_s(ReadPolicy::kCompletion, {"nvme"}), 400 / kFast, 0.02 * 400 / kFast);
  EXPECT_NEAR(read_s(ReadPolicy::kCompletion, {"pfs"}), 400 / kSlow, 0.02 * 400 / kSlow);
}

TEST_F(BigStep, CompletionUsesBothTiersAtTheirRatesTogether) {
  const double serial_s = read_s(ReadPolicy::kSerial);
  const double completion_s = read_s(ReadPolicy::kCompletion);
  EXPECT_NEAR(completion_s, 400 / (kFast + kSlow), 0.04 * 400 / (kFast + kSlow));
  EXPECT_NEAR(serial_s / completion_s, (kFast + kSlow) / kFast, 0.05);
}

TEST_F(BigStep, CompletionIsNotSlowerThanTheFasterTierAloneHoweverSlowTheOtherIs) {
  for (const double slow : {400.0, 50.0, 10.0, 1.0}) {
    SCOPED_TRACE(slow);
    options_.tiers[1] = virtual_tier("pfs", Visibility::kJob, 800, slow);
    const double alone_s = read_s(ReadPolicy::kCompletion, {"nvme"});
    EXPECT_LE(read_s(ReadPolicy::kCompletion), 1.03 * alone_s);
  }
}

TEST_F(BigStep, NoPolicyBeatsTheBound) {
  for (const ReadPolicy policy : {ReadPolicy::kSerial, ReadPolicy::kPooled, ReadPolicy::kStatic,
                                  ReadPolicy::kShortestQueue, ReadPolicy::kCompletion}) {
    read_s(policy);
    ASSERT_TRUE(last_.at("bound").is_object());
    EXPECT_EQ(last_.at("bound").at("error"), "");
    ASSERT_FALSE(last_.at("bound").at("efficiency").is_null()) << last_.at("bound").dump();
    EXPECT_LE(last_.at("bound").at("efficiency").get<double>(), 1.01);
  }
  EXPECT_GE(last_.at("bound").at("efficiency").get<double>(), 0.95) << "of completion";
}

TEST_F(BigStep, ABurstIsNoWayToBeatTheBound) {
  for (VirtualTier& tier : options_.tiers) tier.model.burst_ns = 100 * kMillisecond;
  EXPECT_LT(read_s(ReadPolicy::kCompletion), 0.93 * 400 / (kFast + kSlow));
  ASSERT_TRUE(last_.at("bound").is_object());
  EXPECT_EQ(last_.at("bound").at("error"), "");
}

TEST_F(BigStep, ATierThatIsSlowedDownMidwayTakesLongerFromThenOn) {
  options_.slow = {{"nvme", 500 * kMillisecond, 0.1}};
  // 200 blocks in the first 0.5 s, the rest at 40 blocks/s.
  EXPECT_NEAR(read_s(ReadPolicy::kCompletion, {"nvme"}), 0.5 + 200 / (0.1 * kFast), 0.4);
  EXPECT_LE(read_s(ReadPolicy::kCompletion), 0.5 + 150 / (0.1 * kFast + kSlow) + 0.5);
}

TEST_F(BigStep, SlowEventsTakeEffectInTheOrderOfTheirTimes) {
  options_.slow = {{"nvme", 600 * kMillisecond, 1}, {"nvme", 100 * kMillisecond, 0.5}};
  // 40 blocks, then 100 at half the rate, then 260.
  EXPECT_NEAR(read_s(ReadPolicy::kCompletion, {"nvme"}), 0.1 + 0.5 + 260 / kFast, 0.1);
}

TEST_F(BigStep, MemoryThatIsThrottledIsAsSlowAsItIsSaidToBe) {
  options_.tiers[0] = virtual_tier("host", Visibility::kRank, 800, kSlow);
  EXPECT_NEAR(read_s(ReadPolicy::kCompletion, {"host"}), 0, 0.1) << "taken in place";
  options_.tiers[0].spec.throttle.read_bytes_per_s = kSlow * kVirtualBlockBytes;
  EXPECT_NEAR(read_s(ReadPolicy::kCompletion, {"host"}), 400 / kSlow, 0.1);
}

TEST_F(BigStep, TheLinkToTheDeviceHoldsUpWhatTheTiersWouldBring) {
  options_.copies = {64, 0, 100.0 * kVirtualBlockBytes};
  EXPECT_NEAR(read_s(ReadPolicy::kCompletion), 4, 0.1);
}

TEST(VirtualRun, WithoutACacheNothingIsReadOrWrittenAndItTakesWhatComputingTakes) {
  VirtualOptions options = virtual_options();
  options.tiers = {virtual_tier("nvme", Visibility::kNode, 100, kFast)};
  const auto requests = virtual_requests(1, 30);
  const auto work = prepare_virtual(options, requests, requests, Replication::kAll);
  Mode mode;
  mode.no_cache = true;
  const json run = json_of(options, play_or_die(options, work, mode));
  EXPECT_EQ(run.at("bytes").at("read").at("nvme"), 0);
  EXPECT_EQ(run.at("bytes").at("written").at("nvme"), 0);
  EXPECT_EQ(run.at("blocks").at("looked_up"), 0);
  EXPECT_EQ(run.at("requests"), 30);
  EXPECT_NEAR(run.at("forward_share").get<double>(), 1, 1e-6);
}

TEST(VirtualRun, TwoRanksReadEachOthersBlocksAfterTheFollowPeriodAndNotBefore) {
  for (const Nanos later : {kSecond / 4, 3 * kSecond}) {
    VirtualOptions options = virtual_options(2);
    options.node_of_rank = {0, 1};
    options.tiers = {virtual_tier("pfs", Visibility::kJob, 400, kSlow)};
    options.serving.arrivals = Arrivals::kTrace;
    TraceRequest first = prompt_of(10 * kVirtualBlockTokens, 1, kVirtualBlockTokens, 1);
    first.sizes_bytes.assign(10, kVirtualBlockBytes);
    TraceRequest second = first;
    second.rank = 1;
    second.arrival_ns = later;
    const auto work = prepare_virtual(options, std::vector{first, second}, {}, Replication::kOne);
    const VirtualOutcome outcome = play_or_die(options, work, {});
    EXPECT_EQ(outcome.engines.at(1).hits, later > kSecond ? 10U : 0U) << later;
  }
}

TEST(VirtualRun, WhatAnotherRankLeftOnTheFileSystemIsThereFromTheStart) {
  for (const std::uint32_t writer : {0U, 1U}) {
    VirtualOptions options = virtual_options(2);
    options.node_of_rank = {0, 1};
    options.tiers = {virtual_tier("pfs", Visibility::kJob, 400, kSlow)};
    TraceRequest left = prompt_of(10 * kVirtualBlockTokens, 1, kVirtualBlockTokens, 1);
    left.sizes_bytes.assign(10, kVirtualBlockBytes);
    left.rank = writer;
    TraceRequest asked = left;
    asked.rank = 1 - writer;
    const auto work =
        prepare_virtual(options, std::vector{asked}, std::vector{left}, Replication::kOne);
    const VirtualOutcome outcome = play_or_die(options, work, {});
    EXPECT_EQ(outcome.engines.at(1 - writer).hits, 10U) << "written by rank " << writer;
  }
}

TEST(VirtualRun, RanksOfANodeShareItsDriveAndNotTheLimitsOfTheirMemory) {
  for (const bool drive : {true, false}) {
    VirtualOptions options = virtual_options(2);
    options.copies = {};
    options.serving.scheduler.kv.capacity_tokens = 1 << 16;
    options.node_of_rank = {0, 0};
    options.tiers = {drive ? virtual_tier("nvme", Visibility::kNode, 400, kSlow)
                           : virtual_tier("host", Visibility::kRank, 400, kSlow)};
    options.tiers[0].spec.throttle.read_bytes_per_s = kSlow * kVirtualBlockBytes;
    std::vector<TraceRequest> requests;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      requests.push_back(prompt_of(100 * kVirtualBlockTokens, 1, kVirtualBlockTokens, 1 + rank));
      requests.back().sizes_bytes.assign(100, kVirtualBlockBytes);
      requests.back().rank = rank;
    }
    const auto work = prepare_virtual(options, requests, requests, Replication::kOne);
    const VirtualOutcome outcome = play_or_die(options, work, {});
    const double alone_s = 100 / kSlow;
    double last_s = 0;
    for (const RankRun& run : outcome.engines) {
      EXPECT_EQ(run.hits, 100U);
      EXPECT_GT(run.step_read_s.at(0), (drive ? 1.6 : 0.95) * alone_s);
      last_s = std::max(last_s, run.step_read_s.at(0));
    }
    EXPECT_NEAR(last_s, (drive ? 2 : 1) * alone_s, 0.05 * alone_s);
  }
}

TEST(VirtualRun, InlineWritesLengthenTheAnswersAndDeferredOnesDoNot) {
  VirtualOptions options = virtual_options();
  options.tiers = {virtual_tier("nvme", Visibility::kNode, 2000, 40)};
  std::vector<TraceRequest> requests = {
      prompt_of(16 * kVirtualBlockTokens, 1, kVirtualBlockTokens, 1)};
  requests[0].sizes_bytes.assign(16, kVirtualBlockBytes);
  const auto work = prepare_virtual(options, requests, {}, Replication::kOne);
  Mode mode;
  const double deferred_s = play_or_die(options, work, mode).engines.at(0).ttft_s.at(0);
  mode.writes = WriteTiming::kInline;
  const double inline_s = play_or_die(options, work, mode).engines.at(0).ttft_s.at(0);
  // 512 tokens at 20,000 tokens/s; 16 blocks at 32 blocks/s.
  EXPECT_NEAR(deferred_s, 0.0256, 1e-4);
  EXPECT_NEAR(inline_s, 0.0256 + 0.5, 0.03);
}

TEST(VirtualRun, AStopEndsTheRunAlsoWhileLoadsAndCopiesAreUnderWay) {
  for (const LoadMode load_mode : {LoadMode::kSync, LoadMode::kAsync}) {
    std::atomic<bool> stop{false};
    VirtualOptions options = virtual_options();
    options.copies = {1, 1e6, 0};  // so slow that a block is being placed
    options.stop = &stop;
    options.serving.scheduler.load_mode = load_mode;
    options.serving.in_system_max = 2;
    options.tiers = {virtual_tier("nvme", Visibility::kNode, 2000, kFast)};
    options.progress = [&](std::uint64_t, std::uint64_t) { stop = true; };
    const auto requests = virtual_requests(1, 400);
    const auto work = prepare_virtual(options, requests, requests, Replication::kOne);
    // Progress is told now and then only: from its first word on the flag is set.
    const VirtualOutcome outcome = play_or_die(options, work, {});
    EXPECT_TRUE(outcome.engines.at(0).interrupted);
    EXPECT_LT(outcome.engines.at(0).requests, 400U);
    const json run = json_of(options, outcome);
    EXPECT_TRUE(run.at("checks").at("accounts_closed")) << run.at("checks").dump();
  }
}

TEST(VirtualRun, AKeyOfAnotherShardIsAnotherKeyAndShardZeroKeepsIt) {
  const BlockKey key = family_key(1, 1);
  EXPECT_EQ(shard_key(key, 0), key);
  EXPECT_NE(shard_key(key, 1), key);
  EXPECT_NE(shard_key(key, 1), shard_key(key, 2));
}

TEST(VirtualRun, ATraceThatIsFasterThanTheDeviceDoesNotChangeWhatIsComputed) {
  VirtualOptions options = virtual_options();
  options.tiers = {virtual_tier("nvme", Visibility::kNode, 100, kFast)};
  const auto requests = virtual_requests(5, 60);
  const auto work = prepare_virtual(options, requests, {}, Replication::kOne);
  Mode mode;
  mode.no_cache = true;
  options.serving.scheduler.kv.prefix_cache = PrefixCache::kOff;
  options.serving.scheduler.kv.capacity_tokens = 1 << 20;
  const auto closed = play_or_die(options, work, mode);
  options.serving.arrivals = Arrivals::kTrace;
  const auto traced = play_or_die(options, work, mode);
  EXPECT_EQ(closed.engines[0].computed_tokens, traced.engines[0].computed_tokens);
  EXPECT_EQ(closed.engines[0].output_tokens, traced.engines[0].output_tokens);
}

}  // namespace
}  // namespace kvstream
