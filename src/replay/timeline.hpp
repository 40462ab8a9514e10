// A Perfetto / Chrome trace of a run: what each source read, and when.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "kvstream/status.hpp"
#include "replay/rank_steps.hpp"

namespace kvstream {

/// One side of a run; all its ranks have the same tiers.
struct TimelineRun {
  std::string label;  ///< e.g. "completion", shown before the rank
  std::vector<std::string> tier_names;
  std::span<const RankSteps> ranks;
};

/// A process a run and rank, in it one track a source (reads, which overlap) and one for steps.
/// Times start at the first step. Open the file in ui.perfetto.dev or chrome://tracing.
void write_timeline(std::ostream& out, std::span<const TimelineRun> runs);
Status write_timeline_file(const std::string& path, std::span<const TimelineRun> runs);

}  // namespace kvstream
