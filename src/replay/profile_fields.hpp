// The free form of profiles: "custom:name=number,name=number".
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "kvstream/status.hpp"

namespace kvstream {

/// Numbers by name.
using ProfileFields = std::map<std::string, double, std::less<>>;

/// Reads what follows "custom:". Each name is one of `required` or `optional`, all of `required`
/// are there, and each number is positive; `what` names the profile in messages.
Result<ProfileFields> parse_profile_fields(std::string_view what, std::string_view text,
                                           std::span<const std::string_view> required,
                                           std::span<const std::string_view> optional);

/// The field's number, or `otherwise`.
double field_or(const ProfileFields& fields, std::string_view name, double otherwise);

}  // namespace kvstream
