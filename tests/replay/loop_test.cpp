// The loop, the contents and a whole replay, over an engine with tiers in memory and in files.
#include "replay/loop.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/tier_kinds.hpp"
#include "core/keys.hpp"
#include "ranks/solo_group.hpp"
#include "replay/contents.hpp"
#include "replay/generator.hpp"
#include "replay/replay.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream {
namespace {

const SteadyClock& clock_of_test() { return SteadyClock::instance(); }

class ReplayLoopTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 64 << 10;

  void SetUp() override {
    specs_ = {{"host", "host", "", 256ULL * kBlock, {}, 0},
              {"nvme", "nvme", directory_.path() + "/nvme", 64ULL << 20U, {}, 0}};
    shape_.block_tokens = 128;
    shape_.kv_bytes_per_token = 512;
    auto made = generate_documents({.documents = 4,
                                    .requests = 24,
                                    .document_tokens = 1000,
                                    .question_tokens = 100,
                                    .output_tokens = 4,
                                    .arrival_gap_ns = kMillisecond,
                                    .seed = 3},
                                   shape_, namespace_key(Namespace{}));
    ASSERT_TRUE(made);
    requests_ = *made;
    open({});
  }

  void open(const Mode& mode) {
    TierContext context;
    context.clock = &clock_of_test();
    context.block_bytes_max = kBlock;
    auto parts = make_tier_parts(specs_, context, tier_kinds());
    ASSERT_TRUE(parts) << parts.error().message();
    Settings settings;
    settings.pool_bytes = 256ULL * kBlock;
    settings.block_bytes_max = kBlock;
    settings.record_steps = true;
    auto engine = Engine::open({settings, mode, context}, std::move(parts->parts));
    ASSERT_TRUE(engine) << engine.error().message();
    engine_ = std::move(*engine);
    engines_ = {engine_.get()};
  }

  LoopOptions options() const {
    LoopOptions options;
    options.shape = shape_;
    options.batch = 4;
    options.clock = &clock_of_test();
    options.waited_save_bytes = 32ULL * kBlock;
    return options;
  }

  RankRun play(const Mode& mode, const LoopOptions& options) {
    auto loop = ReplayLoop::open(*engine_, requests_, options);
    EXPECT_TRUE(loop) << loop.error().message();
    auto run = (*loop)->play(mode, {});
    EXPECT_TRUE(run) << run.error().message();
    return *run;
  }

  PutOptions put_options() const {
    PutOptions put;
    put.block_bytes_max = kBlock;
    put.queue_bytes = 64ULL * kBlock;
    put.timeout_ns = 30 * kSecond;
    put.clock = &clock_of_test();
    return put;
  }

  test::TempDirectory directory_;
  std::vector<TierSpec> specs_;
  BlockShape shape_;
  std::vector<TraceRequest> requests_;
  std::unique_ptr<Engine> engine_;
  std::vector<Engine*> engines_;
  SoloGroup group_;
};

TEST_F(ReplayLoopTest, EveryTokenIsCachedOrComputedAndEveryByteIsRight) {
  const RankRun run = play({}, options());
  EXPECT_EQ(run.requests, 24U);
  EXPECT_EQ(run.steps, 6U);
  std::uint64_t tokens = 0;
  for (const auto& request : requests_) tokens += request.input_tokens;
  EXPECT_EQ(run.prompt_tokens, tokens);
  EXPECT_EQ(run.prompt_tokens, run.cached_tokens + run.computed_tokens);
  EXPECT_GT(run.cached_tokens, 0U);
  EXPECT_GT(run.bytes_verified, 0U);
  EXPECT_EQ(run.wrong_bytes, 0U);
  EXPECT_TRUE(run.at_rest);
  EXPECT_EQ(run.after.leases, 0U);
  EXPECT_EQ(run.ttft_s.size(), 24U);
  EXPECT_EQ(run.after.offered, run.after.published + run.after.dropped);
}

TEST_F(ReplayLoopTest, InlineAndAfterForwardWritesDropNothing) {
  for (const WriteTiming timing : {WriteTiming::kInline, WriteTiming::kAfterForward}) {
    const auto entries = own_contents(*engine_);
    std::vector<BlockKey> keys;
    for (const auto& entry : entries) keys.push_back(entry.key);
    engine_->drop(keys, ~std::uint64_t{0});
    Mode mode;
    mode.writes = timing;
    mode.replication = Replication::kAll;
    const RankRun run = play(mode, options());
    EXPECT_EQ(run.after.dropped, run.before.dropped);
    EXPECT_GT(run.after.published, run.before.published);
    EXPECT_GT(run.write_wait_s, 0);
  }
}

TEST_F(ReplayLoopTest, NoCacheReadsAndWritesNothing) {
  Mode mode;
  mode.no_cache = true;
  const RankRun run = play(mode, options());
  EXPECT_EQ(run.cached_tokens, 0U);
  EXPECT_EQ(run.blocks_asked, 0U);
  EXPECT_EQ(run.after.offered, 0U);
}

TEST_F(ReplayLoopTest, ARequestIsNotAdmittedBeforeItArrives) {
  LoopOptions by_trace = options();
  by_trace.arrivals = Arrivals::kTrace;
  by_trace.time_scale = 2.0;
  const RankRun run = play({}, by_trace);
  EXPECT_EQ(run.requests, 24U);
  EXPECT_GE(run.elapsed_s, 2.0 * static_cast<double>(requests_.back().arrival_ns) * 1e-9);
  for (const double ttft : run.ttft_s) EXPECT_GE(ttft, 0);
}

TEST_F(ReplayLoopTest, AStopFlagEndsTheLoopAtOnce) {
  std::atomic<bool> stop{true};
  LoopOptions stopped = options();
  stopped.stop = &stop;
  const RankRun run = play({}, stopped);
  EXPECT_TRUE(run.interrupted);
  EXPECT_EQ(run.requests, 0U);
}

TEST_F(ReplayLoopTest, ContentsComeBackExactlyAfterARun) {
  std::vector<BlockPlace> wanted;
  for (std::size_t i = 0; i < requests_[0].keys.size(); ++i) {
    wanted.push_back({requests_[0].keys[i], requests_[0].sizes_bytes[i], 1 + i % 3});
  }
  const auto put = put_contents(*engine_, group_, wanted, put_options());
  ASSERT_TRUE(put) << put.error().message();
  EXPECT_TRUE(put->exact());
  const auto before = own_contents(*engine_);
  const auto hash = hash_of_keys(group_, engines_, kSecond);
  ASSERT_TRUE(hash);
  play({}, options());
  EXPECT_NE(own_contents(*engine_), before);
  EXPECT_NE(*hash_of_keys(group_, engines_, kSecond), *hash);
  const auto again = put_contents(*engine_, group_, wanted, put_options());
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE(again->exact());
  EXPECT_GT(again->dropped, 0U);
  EXPECT_EQ(own_contents(*engine_), before);
  EXPECT_EQ(*hash_of_keys(group_, engines_, kSecond), *hash);
}

TEST_F(ReplayLoopTest, WrongBytesInATierAreCountedByTheReplay) {
  // Bytes that are not those of the key, saved under a valid checksum: only the payload tells.
  std::vector<std::byte> lie(kBlock, std::byte{7});
  const auto& request = requests_[0];
  const ConstSpan from{lie.data(), request.sizes_bytes[0]};
  const SaveBlock block{request.keys[0], request.sizes_bytes[0], {&from, 1}, 0};
  const auto saved = engine_->save_step({{&block, 1}, 2});
  ASSERT_TRUE(saved->wait_done(clock_of_test().now() + 10 * kSecond));
  const RankRun run = play({}, options());
  EXPECT_GT(run.wrong_bytes, 0U);
}

TEST_F(ReplayLoopTest, SidesOfAReplayStartFromTheSameKeys) {
  ReplayOptions replay;
  replay.trace_name = "test";
  replay.earlier.assign(requests_.begin(), requests_.begin() + 12);
  replay.requests.assign(requests_.begin() + 12, requests_.end());
  replay.prefill = Prefill::kOn;
  replay.loop = options();
  replay.calibrate = Calibrate::kOff;
  replay.write_queue_bytes = 64ULL * kBlock;
  replay.block_bytes_max = kBlock;
  replay.pairs = 2;
  Mode serial;
  serial.policy = ReadPolicy::kSerial;
  replay.sides = {{"serial", serial}, {"completion", {}}};
  ReplayParts parts;
  parts.engines = engines_;
  parts.group = &group_;
  parts.clock = &clock_of_test();
  parts.tiers = {{specs_[0], Visibility::kRank, false, 0}, {specs_[1], Visibility::kNode, true, 0}};
  const auto outcome = run_replay(replay, parts);
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_TRUE(outcome->good) << outcome->why_not;
  const auto& runs = outcome->json.at("runs");
  ASSERT_EQ(runs.size(), 4U);
  for (const auto& run : runs) {
    EXPECT_EQ(run.at("catalog_hash_at_start"), runs[0].at("catalog_hash_at_start"));
    EXPECT_TRUE(run.at("checks").at("accounts_closed").get<bool>());
    EXPECT_EQ(run.at("checks").at("wrong_bytes"), 0);
    EXPECT_GT(run.at("blocks").at("hits"), 0);
  }
  EXPECT_EQ(outcome->json.at("comparisons").size(), 3U);
}

}  // namespace
}  // namespace kvstream
