// A whole job under virtual time: engines, serving loops and modelled tiers of all ranks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvstream/config.hpp"
#include "replay/busy_periods.hpp"
#include "replay/model_copies.hpp"
#include "replay/model_device.hpp"
#include "replay/prefill.hpp"
#include "replay/rank_steps.hpp"
#include "replay/serving_loop.hpp"
#include "replay/slow_schedule.hpp"

namespace kvstream {

struct VirtualTier {
  TierSpec spec;  ///< cap: of a node (nvme), of the job (pfs), of a rank (host)
  Visibility visibility = Visibility::kRank;
  DeviceModel model;  ///< of the job's, or of each node's (a throttled host: of each rank's)
};
/// Ranks of a node share its memory and drives; a throttle of memory is its rank's own.
bool is_per_rank(const VirtualTier& tier);

struct VirtualOptions {
  std::vector<VirtualTier> tiers;
  CopiesModel copies;
  Settings settings;
  ServingOptions serving;    ///< clock and backing are the run's own
  std::uint32_t shards = 1;  ///< tensor-parallel parts of a rank, each with an engine
  std::vector<std::uint32_t> node_of_rank;
  Nanos follow_period_ns = kSecond;  ///< how soon a rank knows what another has written
  std::vector<SlowEvent> slow;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  ///< requests
};

/// What is asked of each rank, and what lies in its tiers at the start.
struct VirtualWork {
  /// By rank, shard: own keys and sizes.
  std::vector<std::vector<std::vector<TraceRequest>>> requests;
  std::vector<std::vector<BlockPlace>> places;  ///< by rank, oldest first, keys of shard 0
  std::string catalog_hash;
};

/// A key of another shard of the same block, of another low64(); shard 0 keeps the key.
BlockKey shard_key(const BlockKey& key, std::uint32_t shard);

/// Splits requests over ranks (TraceRequest::rank) and shards, and plays `earlier` against LRU
/// orders of the tiers' sizes for what lies there at the start (nothing when it is empty).
VirtualWork prepare_virtual(const VirtualOptions& options, std::span<const TraceRequest> requests,
                            std::span<const TraceRequest> earlier, Replication replication);

/// One engine's view of one side, and the devices that all of them had.
struct VirtualOutcome {
  std::vector<RankRun> engines;  ///< by rank, shard; figures of the loop stand at shard 0
  std::vector<RankSteps> steps;  ///< likewise, with Settings::record_steps
  std::vector<DeviceSpeed> devices;
  Nanos start = 0, end = 0;
  double wall_s = 0;  ///< of the simulation itself
};

/// Deterministic: same options, work and mode, same outcome to the last digit. Errors: settings
/// that no engine can be opened with; a run in which nothing more can happen.
Result<VirtualOutcome> play_virtual(const VirtualOptions& options, const VirtualWork& work,
                                    const Mode& mode);

}  // namespace kvstream
