// A rank's engines with their tiers, and how they are opened and left by all ranks together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "kvstream/engine.hpp"
#include "launch/bootstrap.hpp"
#include "launch/temporary_folder.hpp"
#include "replay/run_devices.hpp"
#include "tiers/throttle_control.hpp"

namespace kvstream {

/// Who can read what a rank writes into a tier of this kind.
Visibility visibility_of(const std::string& kind);

struct JobOptions {
  EngineConfig config;       ///< a rank's; without tiers: a temporary set is made
  std::uint32_t shards = 1;  ///< tensor-parallel parts of a rank, each with an engine
  std::uint64_t namespace_fingerprint = 0;
  std::uint64_t other_bytes = 0;  ///< memory of a rank beside pools and host tiers
  const Clock* clock = nullptr;
};

/// Owned by a subcommand; its thread. Every member is called by all ranks together. The
/// directories of tiers that were asked for stay; temporary ones go with close().
class Job {
 public:
  /// Checks directories, disk space and memory first. All ranks return the same error.
  static Result<std::unique_ptr<Job>> open(Bootstrap& bootstrap, JobOptions options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  std::vector<Engine*> engines() const;  ///< by shard
  /// What each engine was opened with: its part of the rank's.
  const Settings& settings() const { return settings_; }
  const std::vector<ReplayTier>& tiers() const { return tiers_; }
  const EngineConfig& config() const { return options_.config; }
  /// Lifts every throttle (true), or puts it back.
  void full_speed(bool lifted);
  /// One tier's throttle at factor x its configured rates.
  void set_speed(const std::string& tier, double factor);
  /// The throttled tier `tier` once more, behind the same limiter. This rank alone calls it.
  Result<RateProbe> open_probe(std::size_t tier);
  /// True when a thread of an engine is stuck in the kernel: the program must end by `_exit`.
  bool close();

 private:
  Job(Bootstrap& bootstrap, JobOptions options)
      : bootstrap_(bootstrap), options_(std::move(options)) {}
  Status make_temporary_tiers();
  Status expand_and_check();
  Status check_all_memory() const;
  TierContext context(std::uint32_t shard) const;
  Status open_engines();
  void remove_temporary();

  Bootstrap& bootstrap_;
  JobOptions options_;
  Settings settings_;
  std::unique_ptr<TemporaryFolder> temporary_;
  std::vector<ReplayTier> tiers_;
  std::vector<NamedThrottle> throttles_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace kvstream
