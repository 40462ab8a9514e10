// One table of settings: parsing, --help, the printed configuration and its JSON come from it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kvstream/config.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// Everything that a process is configured with, beside what its subcommand adds.
struct EngineConfig {
  Settings settings;
  Mode mode;
  std::string node = "auto";  ///< the node's name; auto = the host name
  std::string log = "info";   ///< error, warn, info, debug, off
  std::vector<TierSpec> tiers;
};

/// Where a value came from; a later one wins whatever the order of the calls.
enum class ValueSource : std::uint8_t { kDefault, kFile, kEnvironment, kCommandLine };
std::string_view to_string(ValueSource source) noexcept;

enum class ValueKind : std::uint8_t {
  kSize,      ///< std::uint64_t or std::uint32_t: "256MiB"
  kCount,     ///< std::uint64_t or std::uint32_t
  kDuration,  ///< Nanos: "30s"
  kNumber,    ///< double
  kSwitch,    ///< bool: true, false, on, off
  kChoice,    ///< an enum with 8 bits
  kText,      ///< std::string
  kNames,     ///< std::vector<std::string>: "a,b"
};

/// An enum's storage and the names of its values, in order from 0.
struct ChoiceTarget {
  std::uint8_t* value = nullptr;
  std::span<const std::string_view> names;
};
template <class E>
ChoiceTarget choice_target(E* value, std::span<const std::string_view> names) {
  static_assert(sizeof(E) == 1);
  return {reinterpret_cast<std::uint8_t*>(value), names};
}

using ValueTarget = std::variant<std::uint64_t*, std::uint32_t*, Nanos*, double*, bool*,
                                 std::string*, std::vector<std::string>*, ChoiceTarget>;

/// One line of the table. `name` is the command line's form ("claim-blocks"); a file may write "_"
/// for "-", the environment says KVSTREAM_CLAIM_BLOCKS.
struct SettingEntry {
  std::string name;
  ValueKind kind = ValueKind::kText;
  std::string help;
  std::string unit{};  ///< "B", "s", "blocks", ...; "" = none
  ValueTarget target{};
  double min = 0;  ///< of numbers and counts
  double max = 1e19;
};

/// Writes values into variables that the caller owns and that must outlive it; remembers where each
/// came from. One thread.
class SettingsTable {
 public:
  /// The default is what the variable holds now.
  void add(SettingEntry entry);
  /// kInvalidArgument with the cure: unknown name (the nearest known one is named), bad value.
  Status set(std::string_view name, std::string_view text, ValueSource source);
  /// Takes KVSTREAM_<SETTING> out of "NAME=VALUE" strings (environ's form, ends with null). A
  /// KVSTREAM_ variable that names no setting is said in the log and left alone.
  Status load_environment(const char* const* environment);

  bool contains(std::string_view name) const;
  ValueSource source_of(std::string_view name) const;
  /// The value as text that set() would take again.
  std::string value_text(std::string_view name) const;
  std::span<const SettingEntry> entries() const { return entries_; }
  const std::string& default_text(std::string_view name) const;
  /// "a|b|c" of a choice, else the unit.
  std::string form_of(const SettingEntry& entry) const;

  /// One line a setting: "claim-blocks = 1 (default)".
  std::string to_text() const;
  /// {"claim-blocks": {"value": 1, "source": "default"}, ...}
  nlohmann::json to_json() const;
  /// The lines of --help, and with `markdown` a table for docs.
  enum class HelpForm : std::uint8_t { kText, kMarkdown };
  std::string help(HelpForm form) const;

 private:
  const SettingEntry* find(std::string_view name) const;
  Status unknown(std::string_view name) const;

  std::vector<SettingEntry> entries_;
  std::map<std::string, ValueSource, std::less<>> sources_;
  std::map<std::string, std::string, std::less<>> defaults_;
};

/// The engine's settings and mode, the node's name and the log level.
void add_engine_settings(SettingsTable& table, EngineConfig& config);
/// Those of the mode alone: what a side of a comparison may set.
void add_mode_settings(SettingsTable& table, Mode& mode);

/// Reads a TOML file: settings at the top, [[tier]] entries appended to `tiers`. Unknown keys are
/// errors that name file, line and the nearest known key.
Status load_config_file(const std::string& path, SettingsTable& table,
                        std::vector<TierSpec>& tiers);
/// As load_config_file, of text; `origin` stands in messages for the path.
Status load_config_text(std::string_view text, const std::string& origin, SettingsTable& table,
                        std::vector<TierSpec>& tiers);

/// Names of the enum values as command line, files and reports write them.
std::string_view to_string(ReadPolicy value) noexcept;
std::string_view to_string(QueueMeasure value) noexcept;
std::string_view to_string(SerialDepth value) noexcept;
std::string_view to_string(WriteTiming value) noexcept;
std::string_view to_string(Replication value) noexcept;
std::string_view to_string(Landing value) noexcept;

/// The nearest of `known` to `name` by edits, or "" when none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

}  // namespace kvstream
