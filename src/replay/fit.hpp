// Measures a real tier for virtual time: rates, latencies, and how writes disturb reads.
#pragma once

#include "kvstream/tier.hpp"
#include "replay/fit_file.hpp"

namespace kvstream {

struct FitOptions {
  std::uint32_t block_bytes = 1U << 20U;
  std::uint64_t bytes = 256U << 20U;  ///< written once, then read over and over
  Nanos phase_ns = kSecond;           ///< of each saturated measurement
  Nanos discard_ns = 200 * kMillisecond;
  std::uint32_t depth = 16;  ///< operations in flight when saturated
  std::uint32_t lone_accesses = 16;
  Nanos burst_ns = 0;                ///< of the throttle around the tier, if there is one
  Nanos give_up_ns = 120 * kSecond;  ///< for all of it
};

/// Through the tier's own interface, wrappers and all, on slots that it takes and gives back: the
/// calling thread drives it (chores too). Takes about four phases. Errors: a tier that has not two
/// blocks of room, operations that fail, give_up_ns.
Result<DeviceModel> measure_tier_model(Tier& tier, const FitOptions& options);

/// One thread that verifies and copies blocks of this size, bytes per second.
double measure_copy_rate(std::uint32_t block_bytes);

}  // namespace kvstream
