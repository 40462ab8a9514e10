// When requests come, and in which order conversations mix. Pure, deterministic for a seed.
#pragma once

#include <cstdint>
#include <string_view>

#include "kvstream/status.hpp"
#include "replay/workload.hpp"

namespace kvstream {

enum class ArrivalProcess : std::uint8_t {
  kClosed,   ///< the next request when one has ended: times are not used
  kTrace,    ///< the workload's own times
  kPoisson,  ///< exponential gaps
  kGamma     ///< gamma-distributed gaps with a coefficient of variation (1 = Poisson)
};

struct ArrivalOptions {
  ArrivalProcess process = ArrivalProcess::kClosed;
  std::uint32_t concurrency = 0;  ///< closed: requests at a time; 0 = as many as a step admits
  double rate_per_s = 0;          ///< requests a represented second; 0 = the workload's own
  double cv = 1.0;                ///< of gamma's gaps
  std::uint64_t seed = 1;
};

/// "closed", "closed:8", "trace", "poisson" or "gamma", into process and concurrency.
Result<ArrivalOptions> parse_arrivals(std::string_view text);

/// Puts times on the requests, in the list's order, the first at 0. Drawn times (and with a rate
/// the workload's own) are stretched so that the last comes at (n - 1) / rate exactly. Closed
/// leaves all as it is. kInvalidArgument with the cure: times or a rate that are not there.
Status assign_arrivals(Workload& workload, const ArrivalOptions& options);

/// Mixes conversations that stand one behind the other: `open_max` are open at a time, each place
/// of the list goes to one of them by lot, and when one ends the next begins. Within a conversation
/// the order stays.
Workload interleave(Workload workload, std::uint32_t open_max, std::uint64_t seed);

}  // namespace kvstream
