#include "config/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/logging.hpp"
#include "core/units.hpp"

namespace kvstream {
namespace {

constexpr std::string_view kEnvironmentPrefix = "KVSTREAM_";
// The test suites' own variables share the prefix and are no settings.
constexpr std::string_view kTestPrefix = "KVSTREAM_TEST_";

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

Status bad_value(const SettingEntry& entry, std::string_view text, const std::string& cure) {
  return {Code::kInvalidArgument,
          fmt::format("failed to set {} to \"{}\": {}", entry.name, text, cure)};
}

// "claim_blocks" and "CLAIM_BLOCKS" are "claim-blocks".
std::string canonical(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string environment_name(std::string_view name) {
  std::string out(kEnvironmentPrefix);
  for (const char c : name) {
    out += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return out;
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

// A size that parse_size reads back without loss.
std::string exact_size(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 4> kNames = {"", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kNames[unit]);
}

std::string exact_duration(Nanos duration) {
  if (duration % kSecond == 0) return fmt::format("{}s", duration / kSecond);
  if (duration % kMillisecond == 0) return fmt::format("{}ms", duration / kMillisecond);
  if (duration % kMicrosecond == 0) return fmt::format("{}us", duration / kMicrosecond);
  return fmt::format("{}ns", duration);
}

std::string text_of(const SettingEntry& entry) {
  const bool size = entry.kind == ValueKind::kSize;
  return std::visit(
      Overloaded{
          [&](std::uint64_t* v) { return size ? exact_size(*v) : fmt::format("{}", *v); },
          [&](std::uint32_t* v) { return size ? exact_size(*v) : fmt::format("{}", *v); },
          [](Nanos* v) { return exact_duration(*v); },
          [](double* v) { return fmt::format("{}", *v); },
          [](bool* v) { return std::string(*v ? "true" : "false"); },
          [](std::string* v) { return *v; },
          [](std::vector<std::string>* v) { return fmt::format("{}", fmt::join(*v, ",")); },
          [](ChoiceTarget v) { return std::string(v.names[*v.value]); },
      },
      entry.target);
}

nlohmann::json json_of(const SettingEntry& entry) {
  return std::visit(
      Overloaded{
          [](Nanos* v) {
            return nlohmann::json(static_cast<double>(*v) / static_cast<double>(kSecond));
          },
          [](ChoiceTarget v) { return nlohmann::json(v.names[*v.value]); },
          [](auto* v) { return nlohmann::json(*v); },
      },
      entry.target);
}

Result<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && after == end) return value;
  return failure(Code::kInvalidArgument, fmt::format("\"{}\" is no whole number", text));
}

Result<double> parse_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && after == end) return value;
  return failure(Code::kInvalidArgument, fmt::format("\"{}\" is no number", text));
}

// Puts a number into its target if it lies within the entry's bounds and the target's.
template <class T, class V>
Status store(const SettingEntry& entry, std::string_view text, const Result<V>& value, T* target) {
  if (!value) return bad_value(entry, text, value.error().message());
  const auto wide = static_cast<double>(*value);
  const double max = std::min(entry.max, static_cast<double>(std::numeric_limits<T>::max()));
  // Written so that "not a number" is out of range too.
  if (!(wide >= entry.min && wide <= max)) {
    return bad_value(entry, text, fmt::format("it must be between {} and {}", entry.min, max));
  }
  *target = static_cast<T>(*value);
  return Status::ok();
}

Status store_switch(const SettingEntry& entry, std::string_view text, bool* target) {
  for (const std::string_view yes : {"true", "on", "yes", "1"}) {
    if (text == yes) return *target = true, Status::ok();
  }
  for (const std::string_view no : {"false", "off", "no", "0"}) {
    if (text == no) return *target = false, Status::ok();
  }
  return bad_value(entry, text, "use true or false");
}

Status store_choice(const SettingEntry& entry, std::string_view text, ChoiceTarget target) {
  const auto found = std::find(target.names.begin(), target.names.end(), text);
  if (found == target.names.end()) {
    return bad_value(entry, text, fmt::format("use {}", fmt::join(target.names, ", ")));
  }
  *target.value = static_cast<std::uint8_t>(found - target.names.begin());
  return Status::ok();
}

Status store_text(const SettingEntry& entry, std::string_view text) {
  const bool size = entry.kind == ValueKind::kSize;
  return std::visit(
      Overloaded{
          [&](std::uint64_t* v) {
            return store(entry, text, size ? parse_size(text) : parse_count(text), v);
          },
          [&](std::uint32_t* v) {
            return store(entry, text, size ? parse_size(text) : parse_count(text), v);
          },
          [&](Nanos* v) { return store(entry, text, parse_duration(text), v); },
          [&](double* v) { return store(entry, text, parse_number(text), v); },
          [&](bool* v) { return store_switch(entry, text, v); },
          [&](std::string* v) { return v->assign(text), Status::ok(); },
          [&](std::vector<std::string>* v) { return *v = split_names(text), Status::ok(); },
          [&](ChoiceTarget v) { return store_choice(entry, text, v); },
      },
      entry.target);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t kept = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({kept, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view to_string(ValueSource source) noexcept {
  switch (source) {
    case ValueSource::kDefault:
      return "default";
    case ValueSource::kFile:
      return "file";
    case ValueSource::kEnvironment:
      return "environment";
    case ValueSource::kCommandLine:
      return "command line";
  }
  return "?";
}

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 2) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

void SettingsTable::add(SettingEntry entry) {
  defaults_[entry.name] = text_of(entry);
  sources_[entry.name] = ValueSource::kDefault;
  entries_.push_back(std::move(entry));
}

const SettingEntry* SettingsTable::find(std::string_view name) const {
  const std::string wanted = canonical(name);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const SettingEntry& e) { return e.name == wanted; });
  return found == entries_.end() ? nullptr : &*found;
}

Status SettingsTable::unknown(std::string_view name) const {
  std::vector<std::string> known;
  for (const SettingEntry& entry : entries_) known.push_back(entry.name);
  const std::string nearest = nearest_name(canonical(name), known);
  return {Code::kInvalidArgument,
          nearest.empty()
              ? fmt::format("\"{}\" is no setting; --help lists them", name)
              : fmt::format("\"{}\" is no setting; did you mean \"{}\"?", name, nearest)};
}

Status SettingsTable::set(std::string_view name, std::string_view text, ValueSource source) {
  const SettingEntry* entry = find(name);
  if (entry == nullptr) return unknown(name);
  ValueSource& present = sources_.find(entry->name)->second;
  if (source < present) {
    // It loses, yet a mistake in it is still a mistake: try it and put the winner back.
    const std::string winner = text_of(*entry);
    Status tried = store_text(*entry, text);
    const Status restored = store_text(*entry, winner);
    return tried.is_ok() ? restored : tried;
  }
  Status stored = store_text(*entry, text);
  if (stored.is_ok()) present = source;
  return stored;
}

Status SettingsTable::load_environment(const char* const* environment) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view line = *environment;
    if (!line.starts_with(kEnvironmentPrefix) || line.starts_with(kTestPrefix)) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view variable = line.substr(0, equals);
    const std::string_view name = variable.substr(kEnvironmentPrefix.size());
    if (find(name) == nullptr) {
      logger("config").warn("{} in the environment is left alone: {}", variable,
                            unknown(canonical(name)).message());
      continue;
    }
    Status status = set(name, line.substr(equals + 1), ValueSource::kEnvironment);
    if (!status.is_ok()) {
      return {status.code(), fmt::format("{} in the environment: {}", variable, status.message())};
    }
  }
  return Status::ok();
}

bool SettingsTable::contains(std::string_view name) const { return find(name) != nullptr; }

ValueSource SettingsTable::source_of(std::string_view name) const {
  const SettingEntry* entry = find(name);
  return entry == nullptr ? ValueSource::kDefault : sources_.find(entry->name)->second;
}

std::string SettingsTable::value_text(std::string_view name) const {
  const SettingEntry* entry = find(name);
  return entry == nullptr ? std::string() : text_of(*entry);
}

const std::string& SettingsTable::default_text(std::string_view name) const {
  static const std::string none;
  const auto found = defaults_.find(canonical(name));
  return found == defaults_.end() ? none : found->second;
}

std::string SettingsTable::form_of(const SettingEntry& entry) const {
  if (const auto* choice = std::get_if<ChoiceTarget>(&entry.target)) {
    return fmt::format("{}", fmt::join(choice->names, "|"));
  }
  switch (entry.kind) {
    case ValueKind::kSize:
      return "SIZE";
    case ValueKind::kDuration:
      return "TIME";
    case ValueKind::kSwitch:
      return "true|false";
    case ValueKind::kText:
      return "TEXT";
    case ValueKind::kNames:
      return "NAME,...";
    case ValueKind::kNumber:
    case ValueKind::kCount:
    case ValueKind::kChoice:
      break;
  }
  return "N";
}

std::string SettingsTable::to_text() const {
  std::string text;
  for (const SettingEntry& entry : entries_) {
    text +=
        fmt::format("{} = {} ({})\n", entry.name, text_of(entry), to_string(source_of(entry.name)));
  }
  return text;
}

nlohmann::json SettingsTable::to_json() const {
  nlohmann::json json = nlohmann::json::object();
  for (const SettingEntry& entry : entries_) {
    json[entry.name] = {{"value", json_of(entry)}, {"source", to_string(source_of(entry.name))}};
    if (!entry.unit.empty()) json[entry.name]["unit"] = entry.unit;
  }
  return json;
}

std::string SettingsTable::help(HelpForm form) const {
  std::string text;
  if (form == HelpForm::kMarkdown) {
    text = "| setting | form | default | environment | meaning |\n|---|---|---|---|---|\n";
  }
  for (const SettingEntry& entry : entries_) {
    const std::string& standard = default_text(entry.name);
    if (form == HelpForm::kText) {
      text += fmt::format("  --{:<36} {} [{}]\n", entry.name + " " + form_of(entry), entry.help,
                          standard);
      continue;
    }
    std::string shape;
    for (const char c : form_of(entry)) {
      if (c == '|') shape += '\\';  // else it ends the table's cell
      shape += c;
    }
    text += fmt::format("| `{}` | {} | {} | `{}` | {} |\n", entry.name, shape, standard,
                        environment_name(entry.name), entry.help);
  }
  return text;
}

}  // namespace kvstream
