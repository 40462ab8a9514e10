// A throttled tier opened a second time, to see whether it gives the rate that it is set to.
#pragma once

#include <cstdint>
#include <memory>

#include "kvstream/tier.hpp"
#include "replay/calibration.hpp"
#include "tiers/throttle_control.hpp"

namespace kvstream {

/// How a probe reads a device of this rate and latency: at most 64 blocks of at most 4 MiB.
struct ProbeShape {
  std::uint32_t block_bytes = 0, blocks = 0, in_flight = 0;
};
/// PURE. Blocks of about 2 ms, in flight for twice what the latency hides.
ProbeShape probe_shape(std::uint64_t read_bytes_per_s, Nanos latency_ns);

/// Opens a tier like `spec`'s in a folder of its own within the same directory (gone with the
/// probe), writes blocks to it past the limiter, and puts the limiter of the run around it: its
/// reads go where those of the run go, and no tier of the engine is touched.
Result<RateProbe> open_rate_probe(const TierSpec& spec, const TierContext& context,
                                  const TierFactory& make,
                                  const std::shared_ptr<ThrottleControl>& control);

}  // namespace kvstream
