// The cases that the claim rules were made for: a far source beside a near one, and one that slows.
#include <gtest/gtest.h>

#include "step/step_rig.hpp"

namespace kvstream::rig {
namespace {

struct Pair {
  Rig::SourceSpec nvme, pfs;
  Nanos pfs_slows_at = kNever;
};

Nanos read_blocks(Rig& rig, int blocks, std::uint64_t first_number, SourceMask sources) {
  Wish wish;
  wish.requests.emplace_back();
  for (int b = 0; b < blocks; ++b) {
    const std::uint64_t number = first_number + static_cast<std::uint64_t>(b);
    wish.requests.back().push_back(number);
    wish.sources[number] = sources;
  }
  RigStep& step = rig.begin(wish);
  EXPECT_TRUE(rig.run_to_end());
  EXPECT_EQ(step.count(BlockState::kHit), static_cast<std::size_t>(blocks));
  return step.ended - step.began;
}

/// Time of a step in which both hold everything, over its time from the NVMe alone; windows and
/// rates are warm in both.
double against_nvme_alone(const Pair& pair, int blocks) {
  const auto timed = [&](SourceMask sources) {
    Rig rig({pair.nvme, pair.pfs}, {}, 4096);
    // Each device is warmed up by a step of its own.
    read_blocks(rig, 400, 1'000'000, 1);
    read_blocks(rig, 400, 2'000'000, 2);
    if (pair.pfs_slows_at != kNever) {
      rig.tiers[1]->faults.slow_at = rig.clock.now() + pair.pfs_slows_at;
      rig.tiers[1]->faults.slow = 0.1;
    }
    const Nanos took = read_blocks(rig, blocks, 0, sources);
    EXPECT_TRUE(rig.drain());
    return static_cast<double>(took);
  };
  return timed(3) / timed(1);
}

TEST(TwoSources, AFarSourceNeverMakesASmallStepSlower) {
  const Pair pair{{4e9, kMillisecond / 10}, {2e9, 32 * kMillisecond}};
  for (const int blocks : {1, 4, 16, 64}) {
    const double ratio = against_nvme_alone(pair, blocks);
    std::printf("%d blocks: %.3f of the NVMe alone\n", blocks, ratio);
    EXPECT_LE(ratio, 1.05) << blocks << " blocks";
  }
  const double large = against_nvme_alone(pair, 1024);
  std::printf("1024 blocks: %.3f of the NVMe alone\n", large);
  EXPECT_LE(large, 0.75) << "the far source is worth its rate in a large step";
}

TEST(TwoSources, AFarSourceNeverMakesTheFirstStepSlower) {
  // Nothing is warm: the windows are two blocks, the rates are those of open().
  for (const int blocks : {1, 4, 16, 64}) {
    const auto timed = [&](SourceMask sources) {
      Rig rig({{4e9, kMillisecond / 10}, {2e9, 32 * kMillisecond}}, {}, 4096);
      return static_cast<double>(read_blocks(rig, blocks, 0, sources));
    };
    EXPECT_LE(timed(3) / timed(1), 1.05) << blocks << " blocks";
  }
}

TEST(TwoSources, ASourceThatSlowsToATenthCostsAtMostAFifth) {
  for (const double pfs_latency_ms : {1.0, 32.0})
    for (const int blocks : {477, 1907})
      for (const double at : {0.0, 0.05, 0.2, 0.4, 0.6, 1.6}) {
        const Pair pair{{500e6, kMillisecond / 10},
                        {250e6, static_cast<Nanos>(pfs_latency_ms * kMillisecond)},
                        static_cast<Nanos>(at * kSecond)};
        const double ratio = against_nvme_alone(pair, blocks);
        std::printf("%d blocks, latency %.0f ms, slow at %.2f s: %.3f of the NVMe alone\n", blocks,
                    pfs_latency_ms, at, ratio);
        EXPECT_LE(ratio, 1.2);
      }
}

TEST(TwoSources, BothTogetherReachTheSumOfTheirRates) {
  Rig rig({{500e6, kMillisecond / 10}, {250e6, kMillisecond}}, {}, 4096);
  read_blocks(rig, 100, 1'000'000, 3);
  const Nanos took = read_blocks(rig, 477, 0, 3);
  EXPECT_LE(static_cast<double>(took), 1.03 * 477 * kMib / 0.75);
}

}  // namespace
}  // namespace kvstream::rig
