// Requests, an external cache that says what a test told it, and steps, for tests of the scheduler.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "replay/scheduler.hpp"

namespace kvstream {

/// A key of block `index` in the prompt family `family`.
inline BlockKey family_key(std::uint64_t family, std::uint64_t index) {
  BlockKey key;
  const std::uint64_t low = family * 1'000'003 + index;
  std::memcpy(key.bytes.data(), &low, sizeof low);
  std::memcpy(key.bytes.data() + 8, &family, sizeof family);
  return key;
}

/// A prompt whose blocks are those of `family`, `shared` of them, and then its own.
inline TraceRequest prompt_of(std::uint32_t input_tokens, std::uint32_t output_tokens,
                              std::uint32_t block_tokens, std::uint64_t own_family,
                              std::uint64_t family = 0, std::uint32_t shared = 0) {
  TraceRequest request;
  request.input_tokens = input_tokens;
  request.output_tokens = output_tokens;
  const std::uint32_t blocks = (input_tokens + block_tokens - 1) / block_tokens;
  for (std::uint32_t at = 0; at < blocks; ++at) {
    request.keys.push_back(family_key(at < shared ? family : own_family, at));
    request.sizes_bytes.push_back(1);
  }
  return request;
}

class ToldCache final : public ExternalCache {
 public:
  Answer matched(RequestIndex request, std::uint32_t from_block) override {
    asked.emplace_back(request, from_block);
    const auto at = answers.find(request);
    return at == answers.end() ? Answer{} : at->second;
  }
  std::map<RequestIndex, Answer> answers;
  std::vector<std::pair<RequestIndex, std::uint32_t>> asked;
};

/// Requests with blocks of 32 tokens (two pages), and a scheduler over them.
class SchedulerTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 32;

  RequestIndex add(std::uint32_t input, std::uint32_t output, std::uint64_t family = 0,
                   std::uint32_t shared = 0) {
    requests_.push_back(prompt_of(input, output, kBlock, 1000 + requests_.size(), family, shared));
    return static_cast<RequestIndex>(requests_.size() - 1);
  }
  void start(std::uint64_t kv_tokens = 1 << 20) {
    options_.kv.capacity_tokens = kv_tokens;
    options_.kv.block_tokens = kBlock;
    Result<Scheduler> opened = Scheduler::open(options_, requests_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    scheduler_.emplace(std::move(*opened));
  }
  void arrive_all() {
    for (RequestIndex at = 0; at < requests_.size(); ++at)
      ASSERT_TRUE(scheduler_->arrive(at).is_ok());
  }
  const Batch& schedule() { return scheduler_->schedule(external_); }
  /// A whole step: sync loads come whole, async ones are left to the test.
  const Ended& step() {
    const Batch& batch = schedule();
    if (options_.load_mode == LoadMode::kSync) {
      for (const WantedLoad& load : batch.loads) scheduler_->loaded(load.request, load.count);
    }
    return scheduler_->forward_ended();
  }
  std::uint32_t run_out(std::uint32_t steps_max = 10'000) {
    std::uint32_t steps = 0;
    while (scheduler_->unfinished() > 0 && steps < steps_max) {
      step();
      ++steps;
    }
    return steps;
  }
  void expect_closed() {
    const SchedulerAccounts& sums = scheduler_->accounts();
    EXPECT_EQ(sums.prompt + sums.lost_to_preemption,
              sums.cached_device + sums.cached + sums.computed);
    EXPECT_EQ(scheduler_->kv().used_pages(), 0U);
  }
  static std::vector<RequestIndex> who(const Batch& batch) {
    std::vector<RequestIndex> result;
    for (const ScheduledWork& work : batch.work) result.push_back(work.request);
    return result;
  }

  SchedulerOptions options_;
  std::vector<TraceRequest> requests_;
  ToldCache external_;
  std::optional<Scheduler> scheduler_;
};

using Who = std::vector<RequestIndex>;

}  // namespace kvstream
