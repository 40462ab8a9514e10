// TOML: settings at the top level, tiers as [[tier]].
#include <fmt/format.h>
#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/settings.hpp"
#include "config/tier_spec.hpp"

namespace kvstream {
namespace {

std::string place_of(const std::string& origin, const toml::source_region& region) {
  return fmt::format("{}:{}", origin, region.begin.line);
}

Status at_place(const std::string& place, const Status& status) {
  return {status.code(), fmt::format("{}: {}", place, status.message())};
}

// The library throws; here it ends.
Result<toml::table> parse(std::string_view text, const std::string& origin) {
  try {
    return toml::table(toml::parse(text));
  } catch (const toml::parse_error& error) {
    return failure(Code::kInvalidArgument,
                   fmt::format("{}: {}", place_of(origin, error.source()), error.description()));
  }
}

// A scalar, or an array of texts, as the command line would write it.
Result<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  if (const toml::array* list = node.as_array()) {
    std::string joined;
    for (const toml::node& item : *list) {
      const auto* text = item.as_string();
      if (text == nullptr) break;
      if (!joined.empty()) joined += ',';
      joined += text->get();
    }
    if (!joined.empty() || list->empty()) return joined;
  }
  return failure(Code::kInvalidArgument,
                 "the value must be a text, a number, true or false, or a list of texts");
}

Status read_tier(const toml::table& table, const std::string& origin,
                 std::vector<TierSpec>& tiers) {
  TierSpec spec;
  for (const auto& [key, node] : table) {
    const std::string place = place_of(origin, node.source());
    const Result<std::string> text = text_of(node);
    if (!text) return at_place(place, text.error());
    const Status status = set_tier_field(spec, key.str(), *text);
    if (!status.is_ok()) return at_place(place, status);
  }
  const Status complete = check_tier_spec(spec);
  if (!complete.is_ok()) return at_place(place_of(origin, table.source()), complete);
  tiers.push_back(std::move(spec));
  return Status::ok();
}

Status read_tiers(const toml::node& node, const std::string& origin, std::vector<TierSpec>& tiers) {
  const toml::array* list = node.as_array();
  if (list == nullptr || !list->is_homogeneous<toml::table>()) {
    return {Code::kInvalidArgument, fmt::format("{}: tiers are written as [[tier]] (two brackets)",
                                                place_of(origin, node.source()))};
  }
  for (const toml::node& item : *list) {
    Status status = read_tier(*item.as_table(), origin, tiers);
    if (!status.is_ok()) return status;
  }
  return Status::ok();
}

}  // namespace

Status load_config_text(std::string_view text, const std::string& origin, SettingsTable& table,
                        std::vector<TierSpec>& tiers) {
  const Result<toml::table> parsed = parse(text, origin);
  if (!parsed) return parsed.error();
  for (const auto& [key, node] : *parsed) {
    Status status;
    if (key.str() == "tier") {
      status = read_tiers(node, origin, tiers);
      if (!status.is_ok()) return status;
      continue;
    }
    const std::string place = place_of(origin, node.source());
    // The name first: "unknown" is the better message when both are wrong.
    if (table.contains(key.str())) {
      const Result<std::string> value = text_of(node);
      status = value ? table.set(key.str(), *value, ValueSource::kFile) : value.error();
    } else {
      status = table.set(key.str(), "", ValueSource::kFile);
    }
    if (!status.is_ok()) return at_place(place, status);
  }
  return check_tier_list(tiers);
}

Status load_config_file(const std::string& path, SettingsTable& table,
                        std::vector<TierSpec>& tiers) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return {Code::kNotFound, fmt::format("failed to read configuration {} ({}); name a TOML file",
                                         path, std::strerror(errno))};
  }
  return load_config_text(text.str(), path, table, tiers);
}

}  // namespace kvstream
