// What a policy can gain at most (MEASURE section 2). Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kvstream/config.hpp"

namespace kvstream {

/// All blocks on all tiers, the rival reads from tier 0 alone: sum of the rates / the first.
/// No ceiling for a step's read time where ranks share devices (queueing): use busy time there.
double read_time_ceiling(std::span<const double> read_rates_bytes_per_s);

struct TierRates {
  double read_bytes_per_s = 0, write_bytes_per_s = 0;
};

/// The rival reads and writes tier `rival_tier` alone, and writes inline.
struct RivalShares {
  double reads = 0;   ///< s_r, part of its time in which it waits for reads (io_share)
  double writes = 0;  ///< s_w, part in which it waits for inline writes
  std::size_t rival_tier = 0;
};

/// A is compute plus reads at all rates, D the devices' own time, as parts of the rival's time;
/// throughput rises by at most 1 / max(A, D), the hit ratio being the same.
struct ThroughputCeiling {
  double a = 0, d = 0;
  double ceiling = 0;
};
/// `replication` of our side: kAll writes each tier, kOne spreads, kNone writes nothing.
ThroughputCeiling throughput_ceiling(std::span<const TierRates> tiers, const RivalShares& rival,
                                     Replication replication);

}  // namespace kvstream
