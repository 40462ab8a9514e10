// One side of a run: what each rank saw, and all ranks put together.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "kvstream/status.hpp"
#include "ranks/group.hpp"
#include "replay/busy_periods.hpp"
#include "replay/loop.hpp"
#include "replay/proc_stats.hpp"
#include "replay/rank_steps.hpp"

namespace kvstream {

/// Beside the loop's own figures.
struct RankCost {
  double cpu_s = 0;        ///< of the process, during the side
  double steal_share = 0;  ///< of the machine
  std::uint64_t peak_rss_bytes = 0, peak_shm_bytes = 0;
};

/// Every figure of a rank that adds up over ranks or is pooled, as JSON for the other ranks.
nlohmann::json rank_json(const RankRun& run, const RankCost& cost);

/// What one side gave: `ranks` is what rank_json() made on each, `steps` the records of each.
struct SideInput {
  std::string side;
  std::string catalog_hash;
  std::vector<nlohmann::json> ranks;
  std::vector<RankSteps> steps;
  double time_scale = 1, bytes_scale = 1;
  Nanos start = 0, end = 0;  ///< of the side, on the clock that the steps' offsets lead to
};
/// One object with the keys that docs/reports.md lists (`bound` is null where a device's rate is
/// not known: no `speeds`).
Result<nlohmann::json> merge_ranks(const SideInput& input, std::span<const DeviceSpeed> speeds);

/// looked_up = requested + recomputed + never_loaded; requested = hits + misses + late + cancelled;
/// offered = published + dropped; prompt + lost = cached + computed; no lease left. The broken one
/// is named in `why`.
bool accounts_close(const nlohmann::json& run, std::string& why);

}  // namespace kvstream
