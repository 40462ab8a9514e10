// A whole replay under virtual time: every side from the same contents, compared and reported.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/side.hpp"
#include "replay/replay.hpp"
#include "replay/virtual_run.hpp"

namespace kvstream {

struct VirtualReplay {
  std::string trace_name;
  std::vector<std::string> about;  ///< lines above the table: model, device, engine
  VirtualOptions options;
  std::vector<Side>
      sides;  ///< at least one; the first is the rival whose saturation is a load of 1
  std::uint32_t pairs = 1;  ///< each with a seed of its own, the same for all sides
  /// The requests of a pair; with a rate (requests/s) they arrive at it, else as the settings say.
  std::function<Result<VirtualWork>(std::uint32_t pair, std::optional<double> rate_per_s)> work;
  double load = 0;  ///< of the rival's saturated throughput; 0 = arrivals as they are
  std::string temperature;
  std::string timeline_path;
};

/// JSON and table as run_replay() gives them, with `virtual_time: true`. One process.
Result<ReplayOutcome> run_virtual_replay(const VirtualReplay& replay);

}  // namespace kvstream
