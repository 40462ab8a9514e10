// The kinds of tiers that need no MPI, and how a list of them becomes what an engine opens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvstream/tier.hpp"
#include "tiers/throttle_control.hpp"

namespace kvstream {

/// Kind (the word in `[[tier]] kind = "nvme"`) to factory.
using TierKinds = std::map<std::string, TierFactory, std::less<>>;

/// host, nvme, and pfs in the plain format. Whoever has more adds a line: kinds["x"] = x_factory().
TierKinds tier_kinds();

/// The limiter of one tier; null where the tier is not throttled.
struct NamedThrottle {
  std::string tier;
  std::shared_ptr<ThrottleControl> control;
};

/// What Engine::open wants, in the order of the specs, and the limiters to steer a run with.
struct TierParts {
  std::vector<TierPart> parts;
  std::vector<NamedThrottle> throttles;  ///< one a part, same order
};

/// Paths have their variables put in already; clock is context.clock, which outlives the tiers.
/// Opens the limiters (so a throttled tier's directory is made here), but no tier.
Result<TierParts> make_tier_parts(std::span<const TierSpec> specs, const TierContext& context,
                                  const TierKinds& kinds);

}  // namespace kvstream
