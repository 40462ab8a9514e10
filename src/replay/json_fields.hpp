// Fields of a JSON object that came from a file: checked, or a sentence that says what is there.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvstream/status.hpp"

namespace kvstream {

/// Tokens of one request at most: a bound, not a wish. Positions in a text fit 32 bits with it.
inline constexpr std::uint64_t kRequestTokensMax = 64U << 20U;

/// The object that a line holds.
Result<nlohmann::json> parse_object(const std::string& text);
/// A number in 0..max; a fraction is cut off.
Result<std::uint64_t> count_field(const nlohmann::json& object, const char* name,
                                  std::uint64_t max);
/// A number >= 0.
Result<double> number_field(const nlohmann::json& object, const char* name);
Result<std::uint32_t> tokens_field(const nlohmann::json& object, const char* name);
Result<std::string> text_field(const nlohmann::json& object, const char* name);
/// Null when it is missing or no list.
const nlohmann::json* list_field(const nlohmann::json& object, const char* name);

}  // namespace kvstream
