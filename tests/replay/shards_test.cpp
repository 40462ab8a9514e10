// A replay over two tensor-parallel shards in real time, one of which has a tier that fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/tier_kinds.hpp"
#include "core/keys.hpp"
#include "ranks/solo_group.hpp"
#include "replay/contents.hpp"
#include "replay/generator.hpp"
#include "replay/replay.hpp"
#include "replay/virtual_run.hpp"
#include "tiers/faulty_tier.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

class ShardsTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 32 << 10, kShards = 2;

  void SetUp() override {
    spec_ = {"nvme", "nvme", directory_.path() + "/nvme", 64ULL << 20U, {}, 0};
    shape_.block_tokens = 128;
    shape_.kv_bytes_per_token = 256;
    auto made = generate_documents({.documents = 4,
                                    .requests = 32,
                                    .document_tokens = 1000,
                                    .question_tokens = 100,
                                    .output_tokens = 4,
                                    .arrival_gap_ns = kMillisecond,
                                    .seed = 3},
                                   shape_, namespace_key(Namespace{}));
    ASSERT_TRUE(made);
    requests_ = *made;
  }

  /// `plan` is of shard 1's tier.
  void open(const FaultPlan& plan) {
    for (std::uint32_t shard = 0; shard < kShards; ++shard) {
      TierContext context;
      context.rank = context.local_rank = shard;
      context.ranks = context.local_ranks = kShards;
      context.clock = &clock_;
      context.block_bytes_max = kBlock;
      auto parts = make_tier_parts({&spec_, 1}, context, tier_kinds());
      ASSERT_TRUE(parts) << parts.error().message();
      if (shard == 1) {
        parts->parts[0].wrap = [&,
                                plan](std::unique_ptr<Tier> tier) -> Result<std::unique_ptr<Tier>> {
          return std::make_unique<FaultyTier>(std::move(tier), plan, clock_);
        };
      }
      Settings settings;
      settings.pool_bytes = 256ULL * kBlock;
      settings.block_bytes_max = kBlock;
      settings.record_steps = true;
      auto engine = Engine::open({settings, {}, context}, std::move(parts->parts));
      ASSERT_TRUE(engine) << engine.error().message();
      engines_.push_back(std::move(*engine));
    }
  }

  ReplayOptions options() const {
    ReplayOptions replay;
    replay.trace_name = "test";
    replay.earlier.assign(requests_.begin(), requests_.begin() + 12);
    replay.requests.assign(requests_.begin() + 12, requests_.end());
    replay.prefill = Prefill::kOn;
    replay.loop.shape = shape_;
    replay.calibrate = Calibrate::kOff;
    replay.write_queue_bytes = 64ULL * kBlock;
    replay.block_bytes_max = kBlock;
    replay.sides = {{"completion", {}}};
    ServingOptions serving;
    serving.shape = shape_;
    serving.scheduler.kv.capacity_tokens = 16 * 1024;
    serving.scheduler.kv.block_tokens = shape_.block_tokens;
    serving.scheduler.kv.prefix_cache = PrefixCache::kOff;
    serving.scheduler.sequences_max = 4;
    serving.forward = PlainRates{1e6, 1e6};
    serving.in_system_max = 4;
    serving.waited_save_bytes = 32ULL * kBlock;
    serving.block_bytes_max = kBlock;
    replay.serving = serving;
    return replay;
  }

  Result<ReplayOutcome> play(const ReplayOptions& replay) {
    ReplayParts parts;
    for (const auto& engine : engines_) parts.engines.push_back(engine.get());
    parts.group = &group_;
    parts.clock = &clock_;
    parts.tiers = {{spec_, Visibility::kNode, true, 0}};
    return run_replay(replay, parts);
  }

  static void expect_right(const json& run) {
    EXPECT_EQ(run.at("checks").at("wrong_bytes"), 0);
    EXPECT_TRUE(run.at("checks").at("accounts_closed").get<bool>())
        << run.at("checks").at("account_that_is_open");
  }

  const SteadyClock& clock_ = SteadyClock::instance();
  test::TempDirectory directory_;
  TierSpec spec_;
  BlockShape shape_;
  std::vector<TraceRequest> requests_;
  std::vector<std::unique_ptr<Engine>> engines_;
  SoloGroup group_;
};

TEST_F(ShardsTest, EveryShardStartsEachSideFromTheSameBlocksUnderItsOwnKeys) {
  open({});
  ReplayOptions replay = options();
  Mode serial;
  serial.policy = ReadPolicy::kSerial;
  replay.sides = {{"serial", serial}, {"completion", {}}};
  replay.pairs = 2;
  const auto outcome = play(replay);
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_TRUE(outcome->good) << outcome->why_not;
  const json& runs = outcome->json.at("runs");
  ASSERT_EQ(runs.size(), 4U);
  for (const json& run : runs) {
    expect_right(run);
    EXPECT_EQ(run.at("shards"), kShards);
    EXPECT_EQ(run.at("ranks"), 1);
    EXPECT_EQ(run.at("catalog_hash_at_start"), runs[0].at("catalog_hash_at_start"));
    EXPECT_GT(run.at("blocks").at("hits"), 0);
    EXPECT_EQ(run.at("blocks").at("hits").get<std::uint64_t>() % kShards, 0U);
  }
  const auto of_0 = own_contents(*engines_[0]), of_1 = own_contents(*engines_[1]);
  ASSERT_GT(of_0.size(), 0U);
  EXPECT_EQ(of_0.size(), of_1.size());
  for (const auto& place : of_0) {
    const BlockKey other = shard_key(place.key, 1);
    EXPECT_NE(place.key.low64(), other.low64());
    const bool there = std::any_of(of_1.begin(), of_1.end(), [&](const BlockPlace& at) {
      return at.key == other && at.size_bytes == place.size_bytes;
    });
    EXPECT_TRUE(there) << place.key.to_hex();
  }
}

TEST_F(ShardsTest, ABlockThatOneShardCannotReadIsComputedAndAccountsClose) {
  FaultPlan plan;
  plan.seed = 7;
  plan.reads.error = 0.1;
  open(plan);
  const auto outcome = play(options());
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_TRUE(outcome->good) << outcome->why_not;
  const json& run = outcome->json;
  expect_right(run);
  EXPECT_EQ(run.at("requests"), 20);
  EXPECT_GT(run.at("blocks").at("miss"), 0);
  EXPECT_GT(run.at("tokens").at("cached"), 0);
  // Both shards' parts were asked for; only what both have is of use to the engine.
  const auto full = run.at("tokens").at("cached").get<std::uint64_t>() / shape_.block_tokens;
  EXPECT_LT(kShards * full, run.at("blocks").at("hits").get<std::uint64_t>());
}

TEST_F(ShardsTest, AFlippedBitInOneShardIsAMissAndNoWrongByte) {
  FaultPlan plan;
  plan.seed = 11;
  plan.reads.flip = 0.1;
  open(plan);
  const auto outcome = play(options());
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_TRUE(outcome->good) << outcome->why_not;
  expect_right(outcome->json);
  EXPECT_GT(outcome->json.at("health").at("corrupt").at("nvme"), 0);
}

TEST_F(ShardsTest, ThePlainLoopTakesOneEngineOnly) {
  open({});
  ReplayOptions replay = options();
  replay.serving.reset();
  const auto outcome = play(replay);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kvstream
