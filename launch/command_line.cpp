#include "launch/command_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "config/tier_spec.hpp"

namespace kvstream {
namespace {

bool is_switch_value(std::string_view text) {
  constexpr std::array<std::string_view, 4> kValues = {"on", "off", "true", "false"};
  return std::find(kValues.begin(), kValues.end(), text) != kValues.end();
}

void add_option(CLI::App& app, const SettingsTable& table, const SettingEntry& entry,
                CommandLine& line) {
  const std::string flag = "--" + entry.name;
  if (entry.kind == ValueKind::kSwitch) {
    app.add_flag_function(
           flag + "{true}",
           [&line, name = entry.name](std::int64_t) { line.values.try_emplace(name, "true"); },
           entry.help)
        ->type_name("on|off")
        ->each([&line, name = entry.name](const std::string& text) { line.values[name] = text; });
    return;
  }
  const std::string form = table.form_of(entry);
  const std::string& initial = table.default_text(entry.name);
  app.add_option_function<std::string>(
         flag, [&line, name = entry.name](const std::string& text) { line.values[name] = text; },
         entry.help)
      ->type_name(form.empty() ? "TEXT" : form)
      ->default_str(initial);
}

}  // namespace

void add_options(CLI::App& app, const SettingsTable& table, CommandLine& line) {
  for (const SettingEntry& entry : table.entries()) add_option(app, table, entry, line);
  app.add_option("--config", line.config_path, "TOML file with the same names; [[tier]] for tiers");
  app.add_option("--tier", line.tiers,
                 "NAME=KIND:PATH[,cap=2GiB][,read=500MB/s,write=400MB/s,latency=1ms][,nominal=...]; "
                 "repeatable, in order of preference")
      ->expected(1)
      ->take_all();
  app.add_option("--json", line.json_path, "write the report there; - = to stdout, no table");
}

Status apply(const CommandLine& line, SettingsTable& table, EngineConfig& config) {
  if (!line.config_path.empty()) {
    if (Status status = load_config_file(line.config_path, table, config.tiers); !status.is_ok()) {
      return status;
    }
  }
  if (Status status = table.load_environment(environ); !status.is_ok()) return status;
  for (const auto& [name, text] : line.values) {
    if (Status status = table.set(name, text, ValueSource::kCommandLine); !status.is_ok()) {
      return status;
    }
  }
  if (!line.tiers.empty()) config.tiers.clear();
  for (const auto& text : line.tiers) {
    auto spec = parse_tier_spec(text);
    if (!spec) return spec.error();
    config.tiers.push_back(std::move(*spec));
  }
  return check_tier_list(config.tiers);
}

std::vector<std::string> join_switches(int argc, char** argv, const SettingsTable& table) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool joins = std::any_of(
        table.entries().begin(), table.entries().end(), [&](const SettingEntry& entry) {
          return entry.kind == ValueKind::kSwitch && word == "--" + entry.name;
        });
    if (joins && i + 1 < argc && is_switch_value(argv[i + 1])) {
      words.push_back(word + "=" + argv[++i]);
    } else {
      words.push_back(word);
    }
  }
  return words;
}

}  // namespace kvstream
