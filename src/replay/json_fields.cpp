#include "replay/json_fields.hpp"

#include <nlohmann/json.hpp>

namespace kvstream {
namespace {

std::string missing(const char* name) { return std::string("\"") + name + "\" is missing"; }

std::string wrong(const char* name, const nlohmann::json& value, const std::string& wanted) {
  return std::string("\"") + name + "\" is " + value.dump().substr(0, 40) + ", not " + wanted;
}

}  // namespace

Result<nlohmann::json> parse_object(const std::string& text) {
  auto object = nlohmann::json::parse(text, nullptr, false);
  if (object.is_discarded() || !object.is_object()) {
    return failure(Code::kInvalidArgument, "not a JSON object");
  }
  return object;
}

Result<double> number_field(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return failure(Code::kInvalidArgument, missing(name));
  if (!found->is_number() || !(found->get<double>() >= 0)) {
    return failure(Code::kInvalidArgument, wrong(name, *found, "a number >= 0"));
  }
  return found->get<double>();
}

Result<std::uint64_t> count_field(const nlohmann::json& object, const char* name,
                                  std::uint64_t max) {
  const auto found = object.find(name);
  if (found == object.end()) return failure(Code::kInvalidArgument, missing(name));
  const bool whole = found->is_number_unsigned();
  if (!found->is_number() || !(found->get<double>() >= 0) ||
      (whole ? found->get<std::uint64_t>() > max
             : found->get<double>() > static_cast<double>(max))) {
    return failure(Code::kInvalidArgument,
                   wrong(name, *found, "a number in 0.." + std::to_string(max)));
  }
  return whole ? found->get<std::uint64_t>() : static_cast<std::uint64_t>(found->get<double>());
}

Result<std::uint32_t> tokens_field(const nlohmann::json& object, const char* name) {
  const auto tokens = count_field(object, name, kRequestTokensMax);
  if (!tokens) return failure(tokens.error());
  return static_cast<std::uint32_t>(*tokens);
}

Result<std::string> text_field(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return failure(Code::kInvalidArgument, missing(name));
  if (!found->is_string()) return failure(Code::kInvalidArgument, wrong(name, *found, "a text"));
  return found->get<std::string>();
}

const nlohmann::json* list_field(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_array() ? nullptr : &*found;
}

}  // namespace kvstream
