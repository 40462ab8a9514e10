// A whole replay: fill the tiers, play every side from the same contents, compare, report.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/side.hpp"
#include "kvstream/engine.hpp"
#include "ranks/group.hpp"
#include "replay/contents.hpp"
#include "replay/loop.hpp"
#include "replay/run_devices.hpp"
#include "replay/serving_loop.hpp"
#include "replay/slow_schedule.hpp"
#include "replay/trace.hpp"

namespace kvstream {

/// kHeld: every block of the requests lies in the tiers of `held_by` at the start of each side.
enum class Prefill : std::uint8_t { kOff, kOn, kHeld };

struct ReplayOptions {
  std::string trace_name;              ///< for the table
  std::vector<TraceRequest> earlier;   ///< what --skip left out; all ranks' requests
  std::vector<TraceRequest> requests;  ///< what is played, each by its rank
  Prefill prefill = Prefill::kOff;
  std::uint64_t held_by = 0;  ///< mask of tiers; with kHeld
  LoopOptions loop;
  std::optional<ServingOptions> serving;  ///< instead of the plain loop
  std::vector<std::string> about;         ///< lines above the table: the engine's model
  std::vector<Side> sides;                ///< at least one
  std::uint32_t pairs = 1;
  Replication replication = Replication::kOne;  ///< of the prefill
  Calibrate calibrate = Calibrate::kOn;
  CalibrationOptions calibration;
  std::vector<SlowEvent> slow;
  std::uint64_t write_queue_bytes = 0;  ///< what an engine's write queue takes
  std::uint32_t block_bytes_max = 0;    ///< of a shard
  std::uint32_t copy_threads = 1;       ///< of a rank
  std::string timeline_path;
};

/// Several sides or pairs: each starts from the same contents.
inline bool restores(const ReplayOptions& options) {
  return options.sides.size() * options.pairs > 1;
}

/// What belongs to the program around the replay. All of it outlives the run.
struct ReplayParts {
  std::vector<Engine*> engines;  ///< by shard; the plain loop has one
  Group* group = nullptr;
  const Clock* clock = nullptr;
  const std::atomic<bool>* stop = nullptr;
  std::vector<ReplayTier> tiers;         ///< in the engines' order
  std::function<void(bool)> full_speed;  ///< lifts every throttle, and puts it back
  SetSpeed set_speed;                    ///< of one throttle
  OpenProbe open_probe;                  ///< of a throttled tier; empty: none is checked
  std::function<void(const std::string& what, std::uint64_t done, std::uint64_t all)> progress;
};

/// On rank 0 everything; on the others only the verdict.
struct ReplayOutcome {
  nlohmann::json json;  ///< one run, or {runs: [...], comparisons: [...]}
  std::string table;
  bool good = true;     ///< no wrong byte, accounts closed, bound not beaten, equal contents
  std::string why_not;  ///< one line
  bool interrupted = false;
};

/// Called by all ranks together. Errors are agreed on: all ranks return the same one.
Result<ReplayOutcome> run_replay(const ReplayOptions& options, const ReplayParts& parts);

}  // namespace kvstream
