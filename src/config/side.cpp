#include "config/side.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/settings.hpp"

namespace kvstream {
namespace {

std::vector<std::string_view> words_of(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// True when the word was a preset. Presets stand for published designs (docs/policies.md).
bool apply_preset(std::string_view word, const std::string& faster_tier, Mode& mode) {
  if (word == "no-cache") return mode.no_cache = true;
  if (word != "rival" && word != "rival-deferred") return false;
  mode.policy = ReadPolicy::kSerial;
  mode.serial_depth = SerialDepth::kRequest;
  mode.writes = word == "rival" ? WriteTiming::kInline : WriteTiming::kDeferred;
  mode.use_tiers.clear();
  if (!faster_tier.empty()) mode.use_tiers = {faster_tier};
  return true;
}

Status apply_word(std::string_view word, SettingsTable& table) {
  const std::size_t equals = word.find('=');
  if (equals != std::string_view::npos) {
    return table.set(word.substr(0, equals), word.substr(equals + 1), ValueSource::kCommandLine);
  }
  if (table.set("policy", word, ValueSource::kCommandLine).is_ok()) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("\"{}\" is neither a policy (serial, pooled, static, shortest-queue, "
                      "completion) nor a preset (rival, rival-deferred, no-cache) nor "
                      "SETTING=VALUE",
                      word)};
}

}  // namespace

Result<Side> parse_side(std::string_view text, const Mode& base, const std::string& faster_tier) {
  Side side{std::string(text), base};
  SettingsTable table;
  add_mode_settings(table, side.mode);
  const std::vector<std::string_view> words = words_of(text, ' ');
  if (words.empty()) {
    return failure(Code::kInvalidArgument,
                   "a side is empty; write it like 'completion' or 'policy=serial writes=inline'");
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    // Only at the front, so that what stands behind a preset wins over it.
    if (i == 0 && apply_preset(words[i], faster_tier, side.mode)) continue;
    const Status status = apply_word(words[i], table);
    if (!status.is_ok()) {
      return failure(status.code(), fmt::format("side '{}': {}", text, status.message()));
    }
  }
  return side;
}

Result<std::vector<Side>> parse_policy_list(std::string_view text, const Mode& base) {
  std::vector<Side> sides;
  for (const std::string_view word : words_of(text, ',')) {
    Result<Side> side = parse_side(word, base, "");
    if (!side) return failure(side.error());
    sides.push_back(std::move(*side));
  }
  if (sides.empty()) return failure(Code::kInvalidArgument, "the list of policies is empty");
  return sides;
}

}  // namespace kvstream
