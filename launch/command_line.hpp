// Options of a subcommand, made from a table of settings.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "config/side.hpp"
#include "replay/slow_schedule.hpp"

namespace kvstream {

/// What the user wrote, until it goes into the table. One a subcommand; outlives the parse.
struct CommandLine {
  std::map<std::string, std::string> values;  ///< setting -> text
  std::string policies;                       ///< --policy, when it is a list
  std::vector<std::string> tiers;
  std::vector<std::string> sides;
  std::vector<std::string> slow;
  std::string config_path;
  std::string json_path;
};

/// --side and --slow, for subcommands that compare.
void add_comparison_options(CLI::App& app, CommandLine& line);
/// One option for each setting of the table (a switch may stand alone), and --config, --tier,
/// --json.
void add_options(CLI::App& app, const SettingsTable& table, CommandLine& line);
/// File, environment, command line, in this order; tiers of the command line replace the file's.
Status apply(const CommandLine& line, SettingsTable& table, EngineConfig& config);

/// The sides of --policy and --side, or the one that the settings name.
Result<std::vector<Side>> sides_of(const CommandLine& line, const EngineConfig& config);
/// Of --slow; each must name a throttled tier.
Result<std::vector<SlowEvent>> slow_events_of(const CommandLine& line, const EngineConfig& config);
/// Every setting with its source, the tiers and the sides.
nlohmann::json config_json(const CommandLine& line, const SettingsTable& table,
                           const std::vector<TierSpec>& tiers);
/// Which of the tiers that outlive a process reads fastest, as far as specs tell: `rival` uses it.
std::string faster_tier(const std::vector<TierSpec>& tiers);

/// "--hedge off" and "--hedge=off" are the same to the user; to the parser only the second is.
std::vector<std::string> join_switches(int argc, char** argv, const SettingsTable& table);

}  // namespace kvstream
