// What one step of the engine's scheduler asks for, and what has come of it.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/forward_time.hpp"

namespace kvstream {

/// Into the list of requests, which outlives the scheduler.
using RequestIndex = std::uint32_t;

/// What lies outside the device; asked when a request is about to be admitted.
class ExternalCache {
 public:
  virtual ~ExternalCache() = default;
  struct Answer {
    /// Leading blocks of the request that are there, counted from block 0; the last may be the
    /// prompt's partial one. At most `from_block`: nothing to load.
    std::uint32_t blocks = 0;
    bool pending = false;  ///< not known yet: the request is passed over in this step
  };
  /// The device already has blocks [0, from_block). May be asked again at every step until the
  /// request is admitted, and again after it was preempted.
  virtual Answer matched(RequestIndex request, std::uint32_t from_block) = 0;
};

/// Blocks [first_block, first_block + count) of a request are to be brought to the device.
struct WantedLoad {
  RequestIndex request = 0;
  std::uint32_t first_block = 0;
  std::uint32_t count = 0;
};

/// One step. Sync: the loads end (loaded() for each) before the forward pass over `work`.
/// Async: the loads start now, loaded() may come at any time; none of them is in `work`.
struct Batch {
  /// Empty: nothing can be computed before an arrival, a loaded() or an answer that was pending.
  std::vector<ScheduledWork> work;
  std::vector<WantedLoad> loads;
  std::vector<RequestIndex> preempted;
};

/// Prompt blocks that became whole in a step and were computed, not loaded: what is saved.
struct ComputedBlocks {
  RequestIndex request = 0;
  std::uint32_t first_block = 0;
  std::uint32_t count = 0;
};

struct Ended {
  std::vector<RequestIndex> first_token;  ///< got their first output token
  std::vector<RequestIndex> finished;
  std::vector<ComputedBlocks> computed;
};

/// In tokens unless said otherwise. Once all requests are done:
/// prompt + lost_to_preemption = cached_device + cached + computed.
struct SchedulerAccounts {
  std::uint64_t prompt = 0;              ///< of requests, at their first admission
  std::uint64_t cached_device = 0;       ///< of prompts, found on the device
  std::uint64_t cached = 0;              ///< of prompts, loaded and used
  std::uint64_t computed = 0;            ///< of prompts
  std::uint64_t lost_to_preemption = 0;  ///< of prompts, had been there
  std::uint64_t recomputed_output = 0;
  std::uint64_t discarded = 0;  ///< computed in a pass whose load had failed
  std::uint64_t output = 0;
  std::uint64_t preemptions = 0;  ///< requests
  std::uint64_t rejected = 0;     ///< requests
  std::uint64_t finished = 0;     ///< requests
};

}  // namespace kvstream
