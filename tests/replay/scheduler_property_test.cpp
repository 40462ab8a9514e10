// Random requests, too little KV, loads that come late, in part or not at all: whatever happens,
// everything ends, every account closes, and no bound is broken.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "engine_rig.hpp"
#include "replay/random.hpp"

namespace kvstream {
namespace {

class RandomCache final : public ExternalCache {
 public:
  RandomCache(Random& random, std::span<const TraceRequest> requests, double hit_share)
      : random_(random), requests_(requests), hit_share_(hit_share) {}
  Answer matched(RequestIndex request, std::uint32_t from_block) override {
    EXPECT_LT(from_block, requests_[request].keys.size());
    if (random_.unit() < 0.1) {
      was_pending = true;
      return {.pending = true};
    }
    if (random_.unit() >= hit_share_) return {};
    return {.blocks =
                static_cast<std::uint32_t>(random_.between(0, requests_[request].keys.size()))};
  }
  bool was_pending = false;

 private:
  Random& random_;
  std::span<const TraceRequest> requests_;
  double hit_share_;
};

struct Trial {
  explicit Trial(std::uint64_t seed) : random(seed) {
    const std::array<std::uint32_t, 3> sizes = {16, 32, 64};
    block_tokens = sizes[random.between(0, 2)];
    const std::uint64_t count = random.between(1, 40);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto input = static_cast<std::uint32_t>(random.between(1, 400));
      requests.push_back(prompt_of(input, static_cast<std::uint32_t>(random.between(1, 60)),
                                   block_tokens, 100 + i, random.between(1, 3),
                                   static_cast<std::uint32_t>(random.between(0, 12))));
    }
    options.load_mode = random.unit() < 0.5 ? LoadMode::kSync : LoadMode::kAsync;
    options.token_budget = static_cast<std::uint32_t>(random.between(1, 300));
    options.sequences_max = static_cast<std::uint32_t>(random.between(1, 12));
    options.chunked_prefill = random.unit() < 0.8;
    options.kv = {.capacity_tokens = random.between(100, 1200),
                  .block_tokens = block_tokens,
                  .prefix_cache = random.unit() < 0.8 ? PrefixCache::kOn : PrefixCache::kOff};
    failures = random.unit() < 0.5 ? 0.0 : random.unit();
  }

  std::uint32_t usable(const WantedLoad& load) {
    return random.unit() < failures ? static_cast<std::uint32_t>(random.between(0, load.count))
                                    : load.count;
  }

  Random random;
  std::uint32_t block_tokens = 0;
  std::vector<TraceRequest> requests;
  SchedulerOptions options;
  double failures = 0;
};

/// What a run has seen of each request.
struct Seen {
  std::vector<std::uint32_t> samples, firsts, ends;
  explicit Seen(std::size_t count) : samples(count), firsts(count), ends(count) {}
};

void check_batch(const Trial& trial, const Scheduler& scheduler, const Batch& batch) {
  std::uint64_t tokens = 0;
  for (const ScheduledWork& work : batch.work) {
    EXPECT_GT(work.new_tokens, 0U);
    tokens += work.new_tokens;
  }
  EXPECT_LE(tokens, trial.options.token_budget);
  EXPECT_LE(scheduler.running(), trial.options.sequences_max);
  EXPECT_LE(batch.work.size(), trial.options.sequences_max);
  EXPECT_LE(scheduler.kv().free_pages(), scheduler.kv().capacity_pages());
}

/// Steps until all is done; false where the bound on steps was not enough.
bool drive(Trial& trial, Scheduler& scheduler, Seen& seen) {
  RandomCache external(trial.random, trial.requests, trial.random.unit());
  std::vector<WantedLoad> in_flight;
  std::size_t arrived = 0;
  for (std::uint32_t step = 0; step < 200'000; ++step) {
    while (arrived < trial.requests.size() && trial.random.unit() < 0.3) {
      const Status status = scheduler.arrive(static_cast<RequestIndex>(arrived++));
      EXPECT_TRUE(status.is_ok() || status.code() == Code::kNoSpace) << status.to_string();
    }
    if (arrived == trial.requests.size() && scheduler.unfinished() == 0) return true;
    external.was_pending = false;
    const Batch& batch = scheduler.schedule(external);
    check_batch(trial, scheduler, batch);
    if (trial.options.load_mode == LoadMode::kAsync) {
      in_flight.insert(in_flight.end(), batch.loads.begin(), batch.loads.end());
    } else {
      for (const WantedLoad& load : batch.loads) scheduler.loaded(load.request, trial.usable(load));
    }
    // Whoever waits while nothing runs waits for something.
    EXPECT_TRUE(!batch.work.empty() || scheduler.unfinished() == 0 || external.was_pending ||
                scheduler.loading() > 0);
    EXPECT_EQ(scheduler.loading(), in_flight.size());
    if (!batch.work.empty()) {
      const Ended& ended = scheduler.forward_ended();
      for (const RequestIndex request : ended.first_token) ++seen.firsts[request];
      for (const RequestIndex request : ended.finished) ++seen.ends[request];
    }
    while (!in_flight.empty() && trial.random.unit() < 0.4) {
      const std::size_t at = trial.random.between(0, in_flight.size() - 1);
      scheduler.loaded(in_flight[at].request, trial.usable(in_flight[at]));
      in_flight[at] = in_flight.back();
      in_flight.pop_back();
    }
  }
  return false;
}

void run_trial(std::uint64_t seed, SchedulerAccounts& met) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Trial trial(seed);
  Result<Scheduler> scheduler = Scheduler::open(trial.options, trial.requests);
  ASSERT_TRUE(scheduler) << scheduler.error().to_string();
  Seen seen(trial.requests.size());
  ASSERT_TRUE(drive(trial, *scheduler, seen)) << "did not end";

  const SchedulerAccounts& sums = scheduler->accounts();
  std::uint64_t outputs = 0;
  std::uint64_t rejected = 0;
  std::uint64_t prompts = 0;
  for (std::size_t at = 0; at < trial.requests.size(); ++at) {
    EXPECT_LE(seen.ends[at], 1U);
    EXPECT_EQ(seen.ends[at], seen.firsts[at]);
    rejected += 1 - seen.ends[at];
    outputs += seen.ends[at] * trial.requests[at].output_tokens;
    prompts += seen.ends[at] * trial.requests[at].input_tokens;
  }
  EXPECT_EQ(sums.output, outputs);
  EXPECT_EQ(sums.prompt, prompts);
  EXPECT_EQ(sums.rejected, rejected);
  EXPECT_EQ(sums.prompt + sums.lost_to_preemption,
            sums.cached_device + sums.cached + sums.computed);
  EXPECT_EQ(scheduler->kv().used_pages(), 0U);
  EXPECT_EQ(scheduler->loading(), 0U);
  met.preemptions += sums.preemptions;
  met.cached += sums.cached;
  met.cached_device += sums.cached_device;
  met.discarded += sums.discarded;
  met.rejected += sums.rejected;
  met.recomputed_output += sums.recomputed_output;
}

TEST(SchedulerProperty, EveryRandomRunEndsWithClosedAccounts) {
  const std::uint64_t trials = std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 200'000 : 4'000;
  std::cout << "seeds 1 to " << trials << "\n";
  SchedulerAccounts met;
  for (std::uint64_t seed = 1; seed <= trials && !HasFailure(); ++seed) run_trial(seed, met);
  // The trials are worth something only where they met what is hard.
  std::cout << "met: " << met.preemptions << " preemptions, " << met.rejected << " rejected, "
            << met.discarded << " tokens discarded\n";
  EXPECT_GT(met.preemptions, trials / 4);
  EXPECT_GT(met.cached, trials);
  EXPECT_GT(met.cached_device, trials);
  EXPECT_GT(met.discarded, trials / 4);
  EXPECT_GT(met.recomputed_output, trials / 4);
}

}  // namespace
}  // namespace kvstream
