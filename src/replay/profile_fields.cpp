#include "replay/profile_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kvstream {

Result<ProfileFields> parse_profile_fields(std::string_view what, std::string_view text,
                                           std::span<const std::string_view> required,
                                           std::span<const std::string_view> optional) {
  const auto refuse = [&](std::string why) -> tl::unexpected<Status> {
    return failure(Code::kInvalidArgument,
                   fmt::format("custom {} profile: {}; it takes {}=.. and may have {}=..", what,
                               why, fmt::join(required, "=..,"), fmt::join(optional, "=..,")));
  };
  ProfileFields fields;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    if (equals == part.npos) return refuse(fmt::format("'{}' has no '='", part));
    if (std::ranges::find(required, name) == required.end() &&
        std::ranges::find(optional, name) == optional.end()) {
      return refuse(fmt::format("there is no field '{}'", name));
    }
    double number = 0;
    const char* end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data() + equals + 1, end, number);
    if (error != std::errc() || stop != end || !(number > 0) || !std::isfinite(number)) {
      return refuse(fmt::format("'{}' is not a positive number", part));
    }
    if (!fields.emplace(name, number).second) return refuse(fmt::format("'{}' is twice", name));
  }
  for (const std::string_view name : required) {
    if (!fields.contains(name)) return refuse(fmt::format("'{}' is missing", name));
  }
  return fields;
}

double field_or(const ProfileFields& fields, std::string_view name, double otherwise) {
  const auto at = fields.find(name);
  return at == fields.end() ? otherwise : at->second;
}

}  // namespace kvstream
