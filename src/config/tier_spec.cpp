#include "config/tier_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "config/settings.hpp"
#include "core/units.hpp"

namespace kvstream {
namespace {

constexpr std::string_view kForm =
    "write it like nvme0=nvme:/mnt/nvme0,cap=2GiB,read=500MB/s,write=400MB/s,latency=1ms";

const std::vector<std::string>& field_names() {
  static const std::vector<std::string> names = {"name", "kind",  "path",    "cap",
                                                 "read", "write", "latency", "nominal"};
  return names;
}

Status bad_tier(std::string_view text, const std::string& reason) {
  return {Code::kInvalidArgument, fmt::format("failed to read tier \"{}\": {}", text, reason)};
}

// A tier's name stands in file names, metrics and JSON keys.
bool is_word(std::string_view name) {
  return !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

template <class T>
Status take(T& target, const Result<T>& value) {
  if (!value) return value.error();
  target = *value;
  return Status::ok();
}

// An exact text: format_size rounds.
std::string bytes_text(std::uint64_t bytes) { return fmt::format("{}B", bytes); }

}  // namespace

Status set_tier_field(TierSpec& spec, std::string_view field, std::string_view text) {
  if (field == "name") return spec.name.assign(text), Status::ok();
  if (field == "kind") return spec.kind.assign(text), Status::ok();
  if (field == "path") return spec.path.assign(text), Status::ok();
  if (field == "cap") return take(spec.cap_bytes, parse_size(text));
  if (field == "read") return take(spec.throttle.read_bytes_per_s, parse_rate(text));
  if (field == "write") return take(spec.throttle.write_bytes_per_s, parse_rate(text));
  if (field == "latency") return take(spec.throttle.latency_ns, parse_duration(text));
  if (field == "nominal") return take(spec.nominal_read_bytes_per_s, parse_rate(text));
  const std::string nearest = nearest_name(field, field_names());
  return {Code::kInvalidArgument,
          nearest.empty()
              ? fmt::format(
                    "\"{}\" is no field of a tier; use cap, read, write, latency or nominal", field)
              : fmt::format("\"{}\" is no field of a tier; did you mean \"{}\"?", field, nearest)};
}

Status check_tier_spec(const TierSpec& spec) {
  if (!is_word(spec.name)) {
    return bad_tier(spec.name,
                    "its name must be one word of letters, digits, - and _ (32 at most)");
  }
  if (!is_word(spec.kind)) return bad_tier(spec.name, fmt::format("it names no kind; {}", kForm));
  if (spec.cap_bytes != 0 && spec.cap_bytes < 4096) {
    return bad_tier(spec.name, fmt::format("a cap of {} B holds nothing; was a unit meant, as in "
                                           "cap=2GiB?",
                                           spec.cap_bytes));
  }
  const Result<std::string> path = expand_path(spec.path, {});
  return path ? Status::ok() : path.error();
}

Result<TierSpec> parse_tier_spec(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::size_t comma = std::min(text.find(','), text.size());
  if (equals == std::string_view::npos || equals > comma) {
    return failure(bad_tier(text, fmt::format("it has no NAME=KIND; {}", kForm)));
  }
  TierSpec spec;
  spec.name = text.substr(0, equals);
  const std::string_view place = text.substr(equals + 1, comma - equals - 1);
  const std::size_t colon = std::min(place.find(':'), place.size());
  spec.kind = place.substr(0, colon);
  spec.path = place.substr(std::min(colon + 1, place.size()));

  std::set<std::string, std::less<>> seen;
  std::string_view rest = text.substr(std::min(comma + 1, text.size()));
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view field = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t is = field.find('=');
    if (is == std::string_view::npos) {
      return failure(bad_tier(text, fmt::format("\"{}\" has no value; {}", field, kForm)));
    }
    const std::string_view key = field.substr(0, is);
    if (key == "name" || key == "kind" || key == "path" || !seen.emplace(key).second) {
      return failure(bad_tier(text, fmt::format("\"{}\" is given twice", key)));
    }
    if (Status status = set_tier_field(spec, key, field.substr(is + 1)); !status.is_ok()) {
      return failure(bad_tier(text, status.message()));
    }
  }
  if (Status status = check_tier_spec(spec); !status.is_ok()) return failure(std::move(status));
  return spec;
}

Status check_tier_list(std::span<const TierSpec> tiers) {
  if (tiers.size() > kTiersMax) {
    return {Code::kInvalidArgument,
            fmt::format("{} tiers are named; at most {} fit", tiers.size(), kTiersMax)};
  }
  std::set<std::string> names;
  for (const TierSpec& tier : tiers) {
    if (!names.insert(tier.name).second) {
      return {Code::kInvalidArgument,
              fmt::format("two tiers are called \"{}\"; give each a name of its own", tier.name)};
    }
  }
  return Status::ok();
}

Result<std::string> expand_path(std::string_view path, const PathVariables& variables) {
  std::string out;
  for (std::size_t at = 0; at < path.size();) {
    if (path[at] != '{') {
      out += path[at++];
      continue;
    }
    const std::size_t end = path.find('}', at);
    const std::string_view name =
        end == std::string_view::npos ? path.substr(at) : path.substr(at + 1, end - at - 1);
    if (end != std::string_view::npos && name == "rank") {
      out += std::to_string(variables.rank);
    } else if (end != std::string_view::npos && name == "node") {
      out += variables.node;
    } else if (end != std::string_view::npos && name == "job") {
      out += variables.job;
    } else {
      return failure(Code::kInvalidArgument,
                     fmt::format("\"{}\" in path \"{}\" stands for nothing; use {{rank}}, {{node}} "
                                 "or {{job}}",
                                 name, path));
    }
    at = end + 1;
  }
  return out;
}

Status expand_paths(std::vector<TierSpec>& tiers, const PathVariables& variables) {
  for (TierSpec& tier : tiers) {
    Result<std::string> path = expand_path(tier.path, variables);
    if (!path) return path.error();
    tier.path = *path;
  }
  return Status::ok();
}

std::string format_tier_spec(const TierSpec& spec) {
  std::string text = fmt::format("{}={}", spec.name, spec.kind);
  if (!spec.path.empty()) text += ":" + spec.path;
  if (spec.cap_bytes != 0) text += ",cap=" + bytes_text(spec.cap_bytes);
  if (spec.throttle.read_bytes_per_s != 0) {
    text += ",read=" + bytes_text(spec.throttle.read_bytes_per_s) + "/s";
  }
  if (spec.throttle.write_bytes_per_s != 0) {
    text += ",write=" + bytes_text(spec.throttle.write_bytes_per_s) + "/s";
  }
  if (spec.throttle.latency_ns != 0) {
    text += fmt::format(",latency={}ns", spec.throttle.latency_ns);
  }
  if (spec.nominal_read_bytes_per_s != 0) {
    text += ",nominal=" + bytes_text(spec.nominal_read_bytes_per_s) + "/s";
  }
  return text;
}

}  // namespace kvstream
