// The steps of one rank, for the bound and the timeline, and their form on the wire.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"
#include "kvstream/step.hpp"

namespace kvstream {

inline constexpr std::uint32_t kNoDevice = UINT32_MAX;

/// The steps of one rank. `device_of_tier[t]` is an index into the run's devices (kNoDevice: the
/// tier takes no time, its blocks are left out).
struct RankSteps {
  std::uint32_t rank = 0;
  std::vector<std::uint32_t> device_of_tier;
  /// The device that a second asker of a key takes it over: this node's memory (or a link).
  std::uint32_t memory_device = kNoDevice;
  Nanos clock_offset = 0;  ///< added to all times of this rank (ranks of a node share a clock)
  std::vector<StepRecord> steps;
};

/// For Group::all_gather. `unpack` believes nothing: wire input is checked.
std::string pack_rank_steps(const RankSteps& steps);
Result<RankSteps> unpack_rank_steps(const std::string& packed);

}  // namespace kvstream
