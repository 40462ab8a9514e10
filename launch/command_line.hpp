// Options of a subcommand, made from a table of settings.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "config/settings.hpp"

namespace kvstream {

/// What the user wrote, until it goes into the table. One a subcommand; outlives the parse.
struct CommandLine {
  std::map<std::string, std::string> values;  ///< setting -> text
  std::vector<std::string> tiers;
  std::vector<std::string> sides;
  std::vector<std::string> slow;
  std::string config_path;
  std::string json_path;
};

/// One option for each setting of the table (a switch may stand alone), and --config, --tier, --json.
void add_options(CLI::App& app, const SettingsTable& table, CommandLine& line);
/// File, environment, command line, in this order; tiers of the command line replace the file's.
Status apply(const CommandLine& line, SettingsTable& table, EngineConfig& config);

/// "--hedge off" and "--hedge=off" are the same to the user; to the parser only the second is.
std::vector<std::string> join_switches(int argc, char** argv, const SettingsTable& table);

}  // namespace kvstream
