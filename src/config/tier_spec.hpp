// Tiers as people write them: NAME=KIND:PATH[,cap=2GiB][,read=500MB/s,...] and [[tier]] in TOML.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvstream/config.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// What {rank}, {node} and {job} in a path stand for.
struct PathVariables {
  std::uint32_t rank = 0;
  std::string node;
  std::string job;
};

/// "nvme0=nvme:/mnt/nvme0,cap=2GiB,read=500MB/s,write=400MB/s,latency=1ms,nominal=400MB/s"; a tier
/// without a directory is "host=host,cap=1GiB". The path keeps its {variables}; a comma cannot be
/// part of it. Errors name the field and its cure.
Result<TierSpec> parse_tier_spec(std::string_view text);

/// Sets one field by its name: name, kind, path, cap, read, write, latency, nominal.
Status set_tier_field(TierSpec& spec, std::string_view field, std::string_view text);

/// Complete, a name that is one word, and no {variable} but the known.
Status check_tier_spec(const TierSpec& spec);
/// Two tiers of one name, or more than kTiersMax.
Status check_tier_list(std::span<const TierSpec> tiers);

/// Puts rank, node and job into one path.
Result<std::string> expand_path(std::string_view path, const PathVariables& variables);
/// And into those of all tiers.
Status expand_paths(std::vector<TierSpec>& tiers, const PathVariables& variables);

/// What parse_tier_spec would read again.
std::string format_tier_spec(const TierSpec& spec);

}  // namespace kvstream
