// A side of a comparison: what of the mode differs from the base.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvstream/config.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

struct Side {
  std::string name;  ///< the text as given: it heads a column
  Mode mode;
};

/// "policy=serial writes=inline use-tiers=nvme", a bare policy ("pooled"), a preset, or a preset
/// with settings behind it that win over it. Presets: `rival` = serial, serial-depth=request,
/// writes=inline and only `faster_tier`; `rival-deferred` = the same with writes=deferred;
/// `no-cache`. Keys are the names of Mode's settings.
Result<Side> parse_side(std::string_view text, const Mode& base, const std::string& faster_tier);

/// "serial,pooled,completion": one side each.
Result<std::vector<Side>> parse_policy_list(std::string_view text, const Mode& base);

}  // namespace kvstream
