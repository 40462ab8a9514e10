#include "replay/trace_reader.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/keys.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kTokensMax = 64U << 20U;  // of one request: a bound, not a wish

Status bad_line(const std::string& path, std::uint64_t line, const std::string& what) {
  return {Code::kInvalidArgument, path + " line " + std::to_string(line) + ": " + what};
}

/// A whole number >= 0 of at most `max`, or a sentence that says what is there instead.
Result<std::uint64_t> number_of(const nlohmann::json& line, const char* name, std::uint64_t max) {
  const auto found = line.find(name);
  if (found == line.end()) {
    return failure(Code::kInvalidArgument, std::string("\"") + name + "\" is missing");
  }
  if (!found->is_number() || found->get<double>() < 0 ||
      found->get<double>() > static_cast<double>(max)) {
    return failure(Code::kInvalidArgument, std::string("\"") + name + "\" is " +
                                               found->dump().substr(0, 40) +
                                               ", not a number in 0.." + std::to_string(max));
  }
  return found->is_number_float() ? static_cast<std::uint64_t>(found->get<double>())
                                  : found->get<std::uint64_t>();
}

Result<std::vector<std::uint64_t>> ids_of(const nlohmann::json& line) {
  const auto found = line.find("hash_ids");
  if (found == line.end() || !found->is_array()) {
    return failure(Code::kInvalidArgument, "\"hash_ids\" is missing or no list");
  }
  std::vector<std::uint64_t> ids;
  ids.reserve(found->size());
  for (const auto& id : *found) {
    if (!id.is_number_integer()) {
      return failure(Code::kInvalidArgument, "\"hash_ids\" holds " + id.dump().substr(0, 40) +
                                                 ", which is no whole number");
    }
    ids.push_back(id.is_number_unsigned() ? id.get<std::uint64_t>()
                                          : static_cast<std::uint64_t>(id.get<std::int64_t>()));
  }
  return ids;
}

Result<TraceRequest> parse_line(const std::string& text, const BlockShape& shape,
                                const BlockKey& namespace_key) {
  const auto line = nlohmann::json::parse(text, nullptr, false);
  if (line.is_discarded() || !line.is_object()) {
    return failure(Code::kInvalidArgument, "not a JSON object");
  }
  const auto timestamp_ms = number_of(line, "timestamp", std::uint64_t{1} << 42U);
  if (!timestamp_ms) return failure(timestamp_ms.error());
  const auto input = number_of(line, "input_length", kTokensMax);
  if (!input) return failure(input.error());
  const auto output = number_of(line, "output_length", kTokensMax);
  if (!output) return failure(output.error());
  const auto ids = ids_of(line);
  if (!ids) return failure(ids.error());

  TraceRequest request;
  request.arrival_ns = static_cast<Nanos>(*timestamp_ms) * kMillisecond;
  request.input_tokens = static_cast<std::uint32_t>(*input);
  request.output_tokens = static_cast<std::uint32_t>(*output);
  const std::uint32_t wanted = shape.blocks(request.input_tokens);
  if (wanted != ids->size()) {
    return failure(Code::kInvalidArgument, std::to_string(*input) + " input tokens are " +
                                               std::to_string(wanted) + " blocks of " +
                                               std::to_string(shape.block_tokens) +
                                               ", but \"hash_ids\" has " +
                                               std::to_string(ids->size()) + " (--block-tokens?)");
  }
  put_keys(request, namespace_key, shape, *ids);
  return request;
}

}  // namespace

void put_keys(TraceRequest& request, const BlockKey& namespace_key, const BlockShape& shape,
              const std::vector<std::uint64_t>& ids) {
  request.keys.clear();
  request.sizes_bytes.clear();
  request.keys.reserve(ids.size());
  request.sizes_bytes.reserve(ids.size());
  std::uint32_t left = request.input_tokens;
  for (const std::uint64_t id : ids) {
    const std::uint32_t tokens = std::min(left, shape.block_tokens);
    if (tokens == shape.block_tokens) {
      request.keys.push_back(external_key(namespace_key, id));
    } else {
      const std::array<std::uint64_t, 2> name{id, tokens};
      request.keys.push_back(external_key(namespace_key, std::as_bytes(std::span(name))));
    }
    request.sizes_bytes.push_back(shape.size_bytes(tokens));
    left -= tokens;
  }
}

Result<std::vector<TraceRequest>> read_mooncake(const std::string& path, const BlockShape& shape,
                                                const BlockKey& namespace_key, TraceRange range) {
  std::ifstream file(path);
  if (!file) {
    return failure(Code::kNotFound, "cannot read the trace " + path + " (" + std::strerror(errno) +
                                        "); give the path of a JSON-lines file, or none for the "
                                        "built-in generator");
  }
  std::vector<TraceRequest> requests;
  std::string text;
  std::uint64_t line = 0, index = 0;
  Nanos first = 0, last = 0;
  while (requests.size() < range.count_max && std::getline(file, text)) {
    ++line;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (index++ < range.skip) continue;
    auto request = parse_line(text, shape, namespace_key);
    if (!request) return failure(bad_line(path, line, request.error().message()));
    if (requests.empty()) first = last = request->arrival_ns;
    if (request->arrival_ns < last) {
      return failure(bad_line(path, line, "its timestamp is before that of the line above"));
    }
    last = request->arrival_ns;
    request->arrival_ns -= first;
    requests.push_back(std::move(*request));
  }
  if (file.bad()) return failure(Code::kIoError, "failed to read the trace " + path);
  if (requests.empty() && range.count_max > 0) {
    return failure(Code::kInvalidArgument, path + " has " + std::to_string(index) +
                                               " requests, none behind the first " +
                                               std::to_string(range.skip) + " that are skipped");
  }
  return requests;
}

}  // namespace kvstream
