#include "client/tier_kinds.hpp"

#include <fmt/format.h>

#include <utility>

#include "config/tier_spec.hpp"
#include "tiers/host_tier.hpp"
#include "tiers/nvme_tier.hpp"
#include "tiers/plain_pfs_tier.hpp"
#include "tiers/throttled_tier.hpp"

namespace kvstream {
namespace {

Status unknown_kind(const TierSpec& spec, const TierKinds& kinds) {
  std::string known;
  for (const auto& [kind, factory] : kinds) known += (known.empty() ? "" : ", ") + kind;
  return {Code::kInvalidArgument,
          fmt::format("tier {} is of the unknown kind \"{}\"; this program knows {}", spec.name,
                      spec.kind, known)};
}

}  // namespace

TierKinds tier_kinds() {
  TierKinds kinds;
  kinds["host"] = host_tier_factory();
  kinds["nvme"] = nvme_tier_factory();
  kinds["pfs"] = plain_pfs_tier_factory();
  return kinds;
}

Result<TierParts> make_tier_parts(std::span<const TierSpec> specs, const TierContext& context,
                                  const TierKinds& kinds) {
  if (auto status = check_tier_list(specs); !status.is_ok()) return failure(status);
  TierParts result;
  for (const TierSpec& spec : specs) {
    const auto kind = kinds.find(spec.kind);
    if (kind == kinds.end()) return failure(unknown_kind(spec, kinds));
    TierPart part{spec, kind->second, {}};
    NamedThrottle throttle{spec.name, nullptr};
    if (spec.throttle.any()) {
      auto control = ThrottleControl::open(spec.path, spec.throttle);
      if (!control) return failure(control.error());
      throttle.control = std::move(*control);
      part.wrap = [control = throttle.control, clock = context.clock](
                      std::unique_ptr<Tier> tier) -> Result<std::unique_ptr<Tier>> {
        return std::make_unique<ThrottledTier>(std::move(tier), control, *clock);
      };
    }
    result.parts.push_back(std::move(part));
    result.throttles.push_back(std::move(throttle));
  }
  return result;
}

}  // namespace kvstream
