// Ratios between the sides of a run, over its interleaved pairs. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "config/side.hpp"
#include "replay/run_devices.hpp"
#include "replay/statistics.hpp"

namespace kvstream {

/// All runs of a side: runs[p] is what merge_ranks() made of pair p.
struct SideRuns {
  Side side;
  std::vector<nlohmann::json> runs;
};

/// What ceilings need beside the runs.
struct ComparisonContext {
  std::vector<ReplayTier> tiers;
  /// One a tier, of all its devices together (ranks of two nodes have two drives); 0 = not known.
  std::vector<double> read_rates_bytes_per_s;
  std::vector<std::uint32_t> devices_of_tier;  ///< how many those are; empty = one each
  std::uint32_t ranks = 1;
  bool copies_everywhere = false;  ///< at the start each block was in every tier
  /// Why reads or throughput have no ceiling here ("async loads hide behind ..."); empty: they
  /// have.
  std::string no_ceiling;
};

/// The order of the sides in pair `pair`: each side comes first equally often.
std::vector<std::size_t> order_of_sides(std::size_t sides, std::size_t pair);

/// Each other side against the first, and `completion` against each other side: throughput, time
/// to first token, time of a step's reads. Each beside its ceiling where one is known, with a note
/// where the two sides are not alike (hit ratios, dropped writes, contents at the start).
std::vector<Comparison> compare_sides(std::span<const SideRuns> sides,
                                      const ComparisonContext& context);

}  // namespace kvstream
