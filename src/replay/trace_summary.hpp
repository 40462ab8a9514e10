// What a list of requests is like: lengths, sharing, reuse, arrivals. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "replay/statistics.hpp"
#include "replay/trace.hpp"
#include "replay/workload.hpp"

namespace kvstream {

struct TraceSummary {
  std::uint64_t requests = 0, conversations = 0;
  std::uint64_t prompt_tokens = 0, output_tokens = 0;
  Summary input, output;  ///< tokens a request
  std::uint64_t blocks = 0, distinct_blocks = 0;
  double sharing = 0;                 ///< measure_sharing()
  double distinct_used_once = 0;      ///< share of distinct blocks that are never used again
  Summary reuse_distance_blocks;      ///< distinct blocks used since a block's last use, each reuse
  double arrival_rate_per_s = 0;      ///< represented; 0 where nothing is timed
  double arrival_cv = 0;              ///< of the gaps
  double distinct_represented_b = 0;  ///< bytes of the distinct blocks, unscaled
};

/// `timed`: the arrivals mean something.
TraceSummary summarize_trace(std::span<const TraceRequest> requests, const BlockShape& shape,
                             bool timed);
nlohmann::json to_json(const TraceSummary& summary);

}  // namespace kvstream
