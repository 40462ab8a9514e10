// A serving loop over fake engines and a clock that a test moves.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "replay/engine_rig.hpp"
#include "replay/fake_engine.hpp"
#include "replay/serving_loop.hpp"
#include "replay/virtual_run.hpp"

namespace kvstream {

/// Blocks of 32 tokens; a prompt token takes 1 ms, a decoded one 100 ms.
class ServingLoopTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 32;

  ServingLoopTest() {
    options_.shape.block_tokens = kBlock;
    options_.scheduler.kv.capacity_tokens = 1 << 16;
    options_.scheduler.kv.block_tokens = kBlock;
    options_.scheduler.kv.prefix_cache = PrefixCache::kOff;
    options_.forward = PlainRates{1000, 10};
    options_.block_bytes_max = 4096;
    options_.backing = BufferPool::Backing::kNone;
    options_.verify = Verify::kOff;
    options_.clock = &clock_;
    clock_.set(100 * kSecond);
  }

  RequestIndex add(std::uint32_t input, std::uint32_t output, Nanos arrival = 0) {
    requests_.push_back(prompt_of(input, output, kBlock, 1000 + requests_.size()));
    requests_.back().arrival_ns = arrival;
    return static_cast<RequestIndex>(requests_.size() - 1);
  }
  void store(RequestIndex request, std::size_t blocks, std::uint32_t shard = 0) {
    auto& engine = shard < engines_.size() ? *engines_[shard] : add_engine();
    for (std::size_t i = 0; i < blocks; ++i) {
      engine.stored.insert(shard_key(requests_[request].keys[i], shard));
    }
  }
  test::FakeEngine& add_engine() {
    engines_.push_back(std::make_unique<test::FakeEngine>(clock_));
    return *engines_.back();
  }
  void open(std::uint32_t shards = 1) {
    while (engines_.size() < shards) add_engine();
    of_shard_.assign(shards, requests_);
    std::vector<ServingShard> parts;
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      for (auto& request : of_shard_[shard]) {
        for (BlockKey& key : request.keys) key = shard_key(key, shard);
      }
      parts.push_back({engines_[shard].get(), of_shard_[shard]});
    }
    auto loop = ServingLoop::open(parts, options_);
    ASSERT_TRUE(loop) << loop.error().message();
    loop_ = std::move(*loop);
    begun_ = clock_.now();
    const Status begun = loop_->begin(mode_, begun_);
    ASSERT_TRUE(begun.is_ok()) << begun.message();
  }
  test::FakeEngine& engine(std::size_t shard = 0) { return *engines_.at(shard); }

  Nanos act() { return loop_->act(clock_.now()); }
  Nanos act_at(Nanos since_begin) {
    clock_.set(begun_ + since_begin);
    return act();
  }
  /// Goes on by itself as long as nothing but time is waited for, at most to `until`.
  void go_on(Nanos until = kNever) {
    const Nanos limit = until == kNever ? kNever : begun_ + until;
    for (int i = 0; i < 100'000 && !loop_->done(); ++i) {
      const Nanos next = act();
      if (loop_->done() || next == kNever) break;
      if (next > limit) {
        clock_.set(limit);
        break;
      }
      clock_.set(std::max(next, clock_.now()));
    }
  }
  /// To the end; loads and saves end as soon as nothing else is to do.
  RankRun play_out() {
    for (int i = 0; i < 10'000 && !loop_->done(); ++i) {
      go_on();
      bool any = false;
      for (auto& engine : engines_) any = engine->end_all() || any;
      if (!any && !loop_->done()) {
        ADD_FAILURE() << "the loop waits for nothing";
        break;
      }
    }
    EXPECT_TRUE(loop_->done());
    return loop_->take_run();
  }
  void expect_leases_over() {
    for (auto& engine : engines_) {
      EXPECT_TRUE(engine->leases.empty());
      EXPECT_EQ(engine->looked_up, engine->requested + engine->never_loaded);
    }
  }
  static void expect_tokens_close(const RankRun& run) {
    EXPECT_EQ(run.prompt_tokens + run.lost_tokens,
              run.cached_device_tokens + run.cached_tokens + run.computed_tokens);
  }

  FakeClock clock_;
  Nanos begun_ = 0;
  Mode mode_;
  ServingOptions options_;
  std::vector<TraceRequest> requests_;
  std::vector<std::vector<TraceRequest>> of_shard_;
  std::vector<std::unique_ptr<test::FakeEngine>> engines_;
  std::unique_ptr<ServingLoop> loop_;
};

constexpr Nanos kMs = kMillisecond;

}  // namespace kvstream
