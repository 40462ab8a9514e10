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
  if (entry.name == "policy") {
    // A list of policies is several sides; the setting itself holds one.
    app.add_option_function<std::string>(
           flag,
           [&line](const std::string& text) {
             if (text.find(',') != std::string::npos)
               line.policies = text;
             else
               line.values["policy"] = text;
           },
           entry.help + "; a list a,b,c makes each a side of a comparison")
        ->type_name(table.form_of(entry))
        ->default_str(table.default_text(entry.name));
    return;
  }
  if (entry.kind == ValueKind::kSwitch) {
    app.add_flag_function(
           flag,
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
  app.add_option(
         "--tier", line.tiers,
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

std::string faster_tier(const std::vector<TierSpec>& tiers) {
  const TierSpec* best = nullptr;
  const auto rate = [](const TierSpec& spec) {
    return spec.throttle.read_bytes_per_s != 0 ? spec.throttle.read_bytes_per_s
                                               : spec.nominal_read_bytes_per_s;
  };
  for (const auto& spec : tiers) {
    if (spec.kind == "host") continue;  // virtual tiers have no path, but outlive a process too
    if (best == nullptr || rate(spec) > rate(*best)) best = &spec;
  }
  return best == nullptr ? "" : best->name;
}

void add_comparison_options(CLI::App& app, CommandLine& line) {
  app.add_option("--side", line.sides,
                 "a side of the comparison: a policy, a preset (rival, rival-deferred, no-cache) "
                 "and/or SETTING=VALUE words; repeatable")
      ->expected(1)
      ->take_all();
  app.add_option("--slow", line.slow,
                 "TIER@SECONDS=FACTOR: so long after a side's start the tier's throttle changes")
      ->expected(1)
      ->take_all();
}

Result<std::vector<Side>> sides_of(const CommandLine& line, const EngineConfig& config) {
  std::vector<Side> sides;
  if (!line.policies.empty()) {
    auto listed = parse_policy_list(line.policies, config.mode);
    if (!listed) return failure(listed.error());
    sides = std::move(*listed);
  }
  for (const auto& text : line.sides) {
    const std::string faster = faster_tier(config.tiers);
    if (faster.empty() && text.starts_with("rival") && !config.tiers.empty()) {
      return failure(Code::kInvalidArgument,
                     "rival reads and writes one tier that outlives a process, and none is given");
    }
    auto side = parse_side(text, config.mode, faster);
    if (!side) return failure(side.error());
    sides.push_back(std::move(*side));
  }
  if (sides.empty()) sides.push_back({std::string(to_string(config.mode.policy)), config.mode});
  return sides;
}

Result<std::vector<SlowEvent>> slow_events_of(const CommandLine& line, const EngineConfig& config) {
  std::vector<SlowEvent> events;
  for (const auto& text : line.slow) {
    auto event = parse_slow(text);
    if (!event) return failure(event.error());
    const bool there = std::any_of(
        config.tiers.begin(), config.tiers.end(),
        [&](const TierSpec& spec) { return spec.name == event->tier && spec.throttle.any(); });
    if (!there) {
      return failure(
          Code::kInvalidArgument,
          "slow = \"" + text + "\" names no throttled tier; give that tier read= and write=");
    }
    events.push_back(std::move(*event));
  }
  return events;
}

nlohmann::json config_json(const CommandLine& line, const SettingsTable& table,
                           const std::vector<TierSpec>& tiers) {
  nlohmann::json config = table.to_json();
  config["tiers"] = nlohmann::json::array();
  for (const auto& spec : tiers) config["tiers"].push_back(format_tier_spec(spec));
  config["sides"] = line.sides;
  config["policies"] = line.policies;
  config["slow"] = line.slow;
  return config;
}

std::vector<std::string> join_switches(int argc, char** argv, const SettingsTable& table) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool joins =
        std::any_of(table.entries().begin(), table.entries().end(), [&](const SettingEntry& entry) {
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
