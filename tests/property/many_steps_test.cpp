// Several steps at a time: the same keys on several boards, and who goes first.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <set>

#include "step/step_rig.hpp"

namespace kvstream::rig {
namespace {

bool full() { return std::getenv("KVSTREAM_TEST_FULL") != nullptr; }

struct JoinTally {
  std::uint64_t reads = 0, distinct = 0, blocks = 0, avoidable = 0, stuck = 0, undrained = 0,
                joined = 0;
  Violations violations;
};

/// Two to four steps that want mostly the same keys at about the same time, with faults.
void run_shared_keys(std::uint64_t seed, bool forever, JoinTally& tally) {
  std::mt19937_64 random(seed);
  const auto real = [&](double a, double b) {
    return std::uniform_real_distribution<>(a, b)(random);
  };
  const auto whole = [&](int a, int b) { return std::uniform_int_distribution<>(a, b)(random); };
  const auto n = static_cast<std::size_t>(whole(2, 4));
  const int count_steps = whole(2, 4);
  std::vector<Rig::SourceSpec> specs(n);
  for (auto& spec : specs) {
    spec.bytes_per_s = 5e7 * std::exp(real(0, std::log(30)));
    spec.latency = static_cast<Nanos>(real(0, 5) * kMillisecond);
  }
  Rig rig(specs);
  std::vector<bool> sound(n, true);
  for (std::size_t s = 0; s < n; ++s) {
    FakeTier& tier = *rig.tiers[s];
    tier.random.seed(seed * 7 + s);
    if (whole(0, 2) == 0) tier.faults.error = real(0, 0.2), sound[s] = false;
    if (s > 0 && whole(0, 1) == 1) {
      tier.faults.stall_from = static_cast<Nanos>(real(0, 0.3) * kSecond);
      const bool ends = !(forever && whole(0, 1) == 1);
      tier.faults.stall_for = ends ? static_cast<Nanos>(real(0.01, 5) * kSecond) : Nanos{1} << 60;
      if (!ends) sound[s] = false;
    }
  }
  std::vector<SourceMask> masks(static_cast<std::size_t>(whole(10, 60)));
  for (auto& mask : masks) mask = static_cast<SourceMask>(whole(1, (1 << n) - 1));
  struct Planned {
    Nanos at = 0, cancel_at = kNever;
    Wish wish;
    std::vector<std::uint64_t> keys;
    RigStep* step = nullptr;
  };
  std::vector<Planned> steps(static_cast<std::size_t>(count_steps));
  std::set<std::uint64_t> seen;
  for (Planned& planned : steps) {
    planned.at = static_cast<Nanos>(real(0, 0.2) * kSecond);
    planned.wish.client = static_cast<std::uint32_t>((&planned - steps.data()) % 3);
    planned.wish.deadline = forever ? 30 * kSecond : kNever;
    for (std::uint64_t b = 0; b < masks.size(); ++b)
      if (whole(0, 3) > 0) planned.keys.push_back(b);
    if (planned.keys.empty()) planned.keys.push_back(0);
    for (std::uint64_t key : planned.keys) {
      seen.insert(key);
      planned.wish.requests.push_back({key});
      planned.wish.sources[key] = masks[key];
    }
    if (whole(0, 2) == 0)
      planned.cancel_at = planned.at + static_cast<Nanos>(real(0, 0.5) * kSecond);
    if (whole(0, 3) == 0)
      planned.wish.deadline = planned.at + static_cast<Nanos>(real(0.01, 1) * kSecond);
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Planned& a, const Planned& b) { return a.at < b.at; });
  struct Event {
    Nanos at;
    Planned* planned;
    bool cancel;
  };
  std::vector<Event> events;
  for (Planned& planned : steps) {
    events.push_back({planned.at, &planned, false});
    if (planned.cancel_at != kNever) events.push_back({planned.cancel_at, &planned, true});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  for (const Event& event : events) {
    if (rig.clock.now() < event.at) rig.run([] { return false; }, event.at);
    rig.clock.set(std::max(rig.clock.now(), event.at));
    if (event.cancel)
      rig.dispatcher().cancel(event.planned->step->id, rig.clock.now());
    else
      event.planned->step = &rig.begin(event.planned->wish);
  }
  if (!rig.run_to_end()) ++tally.stuck;
  tally.joined += rig.dispatcher().counters().joined;
  for (const auto& tier : rig.tiers) tally.reads += tier->reads;
  tally.distinct += seen.size();
  for (const Planned& planned : steps)
    for (std::size_t i = 0; i < planned.keys.size(); ++i) {
      ++tally.blocks;
      bool has_sound = false;
      for (std::size_t s = 0; s < n; ++s)
        has_sound = has_sound || ((masks[planned.keys[i]] >> s & 1U) != 0 && sound[s]);
      if (has_sound && planned.cancel_at == kNever && planned.wish.deadline >= 30 * kSecond &&
          planned.step->outcomes[i][0].state != BlockState::kHit)
        ++tally.avoidable;
    }
  if (!rig.drain()) ++tally.undrained;
  tally.violations.twice += rig.violations.twice;
  tally.violations.written_after += rig.violations.written_after;
  tally.violations.wrong_bytes += rig.violations.wrong_bytes;
  tally.violations.early += rig.violations.early;
}

void expect_shared_keys(bool forever, double reads_max) {
  const std::uint64_t seeds = full() ? 8000 : 1000;
  JoinTally tally;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_shared_keys(seed, forever, tally);
  const double per_key = static_cast<double>(tally.reads) / static_cast<double>(tally.distinct);
  std::printf(
      "seeds 1..%lu: reads per distinct block %.3f, joined %lu, avoidable misses %lu of %lu\n",
      seeds, per_key, tally.joined, tally.avoidable, tally.blocks);
  EXPECT_EQ(tally.stuck, 0U);
  EXPECT_EQ(tally.undrained, 0U);
  EXPECT_EQ(tally.violations.twice, 0U);
  EXPECT_EQ(tally.violations.written_after, 0U);
  EXPECT_EQ(tally.violations.wrong_bytes, 0U);
  EXPECT_EQ(tally.violations.early, 0U);
  EXPECT_LE(static_cast<double>(tally.avoidable), static_cast<double>(tally.blocks) * 2e-5);
  EXPECT_LE(per_key, reads_max);
}

TEST(ManySteps, AGoodCompletionServesEveryBoardThatWantsTheKey) { expect_shared_keys(false, 1.90); }
TEST(ManySteps, WaitersAreNotStrandedByStallsWithoutEnd) { expect_shared_keys(true, 1.87); }

struct Ends {
  double big_ms = 0, small_mean_ms = 0, small_max_ms = 0, makespan_ratio = 0;
};

/// A step of 400 blocks, and 20 of 8 blocks, one each 20 ms, on 500 + 250 MB/s.
Ends run_small_beside_large(double ageing) {
  StepDispatcher::Options options;
  options.ageing = ageing;
  Rig rig({{500e6, kMillisecond / 10}, {250e6, kMillisecond}}, options, 4096);
  std::uint64_t number = 0;
  const auto wish_of = [&](int blocks) {
    Wish wish;
    wish.requests.emplace_back();
    for (int b = 0; b < blocks; ++b) {
      wish.requests.back().push_back(number);
      wish.sources[number++] = 3;
    }
    return wish;
  };
  for (int i = 0; i <= 20; ++i) {
    const Nanos at = i * 20 * kMillisecond;
    if (i > 0) rig.run([] { return false; }, at);
    rig.clock.set(at);
    rig.begin(wish_of(i == 0 ? 400 : 8));
  }
  EXPECT_TRUE(rig.run_to_end());
  Ends ends;
  Nanos last = 0;
  for (std::size_t i = 0; i < rig.steps.size(); ++i) {
    const double took = static_cast<double>(rig.steps[i]->ended - rig.steps[i]->began) / 1e6;
    last = std::max(last, rig.steps[i]->ended);
    if (i == 0) {
      ends.big_ms = took;
    } else {
      ends.small_mean_ms += took / 20;
      ends.small_max_ms = std::max(ends.small_max_ms, took);
    }
  }
  ends.makespan_ratio = static_cast<double>(last) / (560 * kMib / 0.75);
  EXPECT_TRUE(rig.drain());
  return ends;
}

TEST(ManySteps, SmallStepsPassALargeOneAndTheDevicesStayBusy) {
  const Ends ends = run_small_beside_large(0.05);
  std::printf("large %.0f ms, small mean %.0f ms, max %.0f ms, makespan/T* %.3f\n", ends.big_ms,
              ends.small_mean_ms, ends.small_max_ms, ends.makespan_ratio);
  EXPECT_LE(ends.small_mean_ms, 60);
  EXPECT_LE(ends.makespan_ratio, 1.03);
}

TEST(ManySteps, EqualStepsEndOneAfterTheOther) {
  Rig rig({{500e6, kMillisecond / 10}, {250e6, kMillisecond}}, {}, 4096);
  std::uint64_t number = 0;
  for (int i = 0; i < 20; ++i) {
    Wish wish;
    wish.requests.emplace_back();
    for (int b = 0; b < 28; ++b) {
      wish.requests.back().push_back(number);
      wish.sources[number++] = 3;
    }
    rig.begin(wish);
  }
  ASSERT_TRUE(rig.run_to_end());
  double mean = 0;
  for (const auto& step : rig.steps) mean += static_cast<double>(step->ended) / 1e6 / 20;
  // In turn they would all end at the end, at about 780 ms.
  std::printf("mean end of 20 equal steps %.0f ms\n", mean);
  EXPECT_LE(mean, 425);
  EXPECT_TRUE(rig.drain());
}

TEST(ManySteps, AgeingKeepsALargeStepFromStarving) {
  // Small steps arrive for ever, as much as the devices can do: least left first alone would let
  // the large step wait until they stop.
  StepDispatcher::Options options;
  const auto large_ends = [&](double ageing) {
    options.ageing = ageing;
    Rig rig({{500e6, 0}}, options, 4096);
    std::uint64_t number = 0;
    const auto add = [&](int blocks) {
      Wish wish;
      wish.requests.emplace_back();
      for (int b = 0; b < blocks; ++b) {
        wish.requests.back().push_back(number);
        wish.sources[number++] = 1;
      }
      return &rig.begin(wish);
    };
    RigStep* large = add(100);
    for (int i = 0; i < 1500 && large->left > 0; ++i) {
      const Nanos at = i * 17 * kMillisecond;
      rig.run([] { return false; }, at);
      rig.clock.set(std::max(at, rig.clock.now()));
      add(8);
    }
    const Nanos end = large->left == 0 ? large->ended : kNever;
    rig.run_to_end();
    EXPECT_TRUE(rig.drain());
    return end;
  };
  const Nanos aged = large_ends(0.05);
  EXPECT_NE(aged, kNever);
  EXPECT_LT(aged, large_ends(0));
}

}  // namespace
}  // namespace kvstream::rig
