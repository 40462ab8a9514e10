// Small jobs under virtual time: tiers with tiny caps, requests that share prefixes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "replay/engine_rig.hpp"
#include "replay/random.hpp"
#include "replay/rank_report.hpp"
#include "replay/virtual_run.hpp"

namespace kvstream {

inline constexpr std::uint32_t kVirtualBlockTokens = 32;
inline constexpr std::uint32_t kVirtualBlockBytes = 65'536;

/// Rates in blocks per second, so that times can be reckoned.
inline VirtualTier virtual_tier(const char* name, Visibility visibility, std::uint64_t slots,
                                double blocks_per_s, Nanos latency = 100 * kMicrosecond) {
  VirtualTier tier;
  tier.spec.name = tier.spec.kind = name;
  tier.spec.cap_bytes = slots * kVirtualBlockBytes;
  tier.visibility = visibility;
  tier.model.read_bytes_per_s = blocks_per_s * kVirtualBlockBytes;
  tier.model.write_bytes_per_s = 0.8 * blocks_per_s * kVirtualBlockBytes;
  tier.model.read_latency_ns = tier.model.write_latency_ns = latency;
  return tier;
}

inline VirtualOptions virtual_options(std::uint32_t ranks = 1, std::uint32_t shards = 1) {
  VirtualOptions options;
  options.copies = {2, 8e9, 0};
  options.settings.block_bytes_max = kVirtualBlockBytes;
  options.settings.pool_bytes = 256ULL * kVirtualBlockBytes;
  options.settings.step_deadline_ns = 3600 * kSecond;
  options.serving.shape.block_tokens = kVirtualBlockTokens;
  options.serving.scheduler.token_budget = 512;
  options.serving.scheduler.sequences_max = 8;
  options.serving.scheduler.kv.capacity_tokens = 2048;
  options.serving.scheduler.kv.block_tokens = kVirtualBlockTokens;
  options.serving.forward = PlainRates{20'000, 2'000};
  options.serving.in_system_max = 6;
  options.serving.block_bytes_max = kVirtualBlockBytes;
  options.serving.step_deadline_ns = 3600 * kSecond;
  options.shards = shards;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) options.node_of_rank.push_back(rank / 2);
  return options;
}

/// Prompts of 1 to 16 blocks of a few families, dealt to the ranks in turn.
inline std::vector<TraceRequest> virtual_requests(std::uint64_t seed, std::size_t count,
                                                  std::uint32_t ranks = 1) {
  Random random(seed);
  std::vector<TraceRequest> requests;
  Nanos at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto input = static_cast<std::uint32_t>(random.between(20, 16 * kVirtualBlockTokens));
    const auto shared = static_cast<std::uint32_t>(random.between(0, 12));
    requests.push_back(prompt_of(input, static_cast<std::uint32_t>(random.between(1, 6)),
                                 kVirtualBlockTokens, 5000 + i, random.between(1, 4), shared));
    auto& request = requests.back();
    for (std::size_t b = 0; b < request.sizes_bytes.size(); ++b) {
      const bool partial = (b + 1) * kVirtualBlockTokens > input;
      request.sizes_bytes[b] = partial ? kVirtualBlockBytes / 4 : kVirtualBlockBytes;
      // A partial block has a key of its own.
      if (partial) request.keys[b] = family_key(9000 + i, b);
    }
    at += static_cast<Nanos>(random.exponential(20e6));
    request.arrival_ns = at;
    request.rank = static_cast<std::uint32_t>(i % ranks);
  }
  return requests;
}

inline VirtualOutcome play_or_die(const VirtualOptions& options, const VirtualWork& work,
                                  const Mode& mode) {
  auto outcome = play_virtual(options, work, mode);
  EXPECT_TRUE(outcome) << outcome.error().message();
  return outcome ? std::move(*outcome) : VirtualOutcome{};
}

/// As a report has it; no wall time is in it.
inline nlohmann::json json_of(const VirtualOptions& options, VirtualOutcome outcome) {
  SideInput input;
  input.side = "side";
  for (const RankRun& run : outcome.engines) input.ranks.push_back(rank_json(run, {}));
  input.steps = std::move(outcome.steps);
  input.start = outcome.start;
  input.end = outcome.end;
  auto merged = merge_ranks(
      input, options.settings.record_steps ? outcome.devices : std::vector<DeviceSpeed>{});
  EXPECT_TRUE(merged) << merged.error().message();
  return merged ? *merged : nlohmann::json();
}

}  // namespace kvstream
