#include "replay/trace_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "replay/json_fields.hpp"
#include "replay/own_trace.hpp"
#include "replay/streams.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kMooncakeBlockTokens = 512;
constexpr std::string_view kAzureHead = "TIMESTAMP,ContextTokens,GeneratedTokens";

Status no_requests(const TextLines& lines) {
  return {Code::kInvalidArgument, lines.path() + " has no requests; is it whole?"};
}

/// Runs of a Mooncake prompt: one an id.
Result<std::vector<TokenRun>> runs_of_ids(const nlohmann::json& line, std::uint32_t input) {
  const auto* ids = list_field(line, "hash_ids");
  if (ids == nullptr) {
    return failure(Code::kInvalidArgument, "\"hash_ids\" is missing or no list");
  }
  const std::uint32_t wanted = (input + kMooncakeBlockTokens - 1) / kMooncakeBlockTokens;
  if (ids->size() != wanted) {
    return failure(Code::kInvalidArgument,
                   std::to_string(input) + " input tokens are " + std::to_string(wanted) +
                       " blocks of " + std::to_string(kMooncakeBlockTokens) +
                       ", but \"hash_ids\" has " + std::to_string(ids->size()) +
                       "; drop or mend the line");
  }
  std::vector<TokenRun> runs;
  runs.reserve(ids->size());
  std::uint32_t left = input;
  for (const auto& id : *ids) {
    if (!id.is_number_integer()) {
      return failure(Code::kInvalidArgument, "\"hash_ids\" holds " + id.dump().substr(0, 40) +
                                                 ", which is no whole number");
    }
    const std::uint32_t tokens = std::min(left, kMooncakeBlockTokens);
    const std::uint64_t stream = id.is_number_unsigned()
                                     ? id.get<std::uint64_t>()
                                     : static_cast<std::uint64_t>(id.get<std::int64_t>());
    runs.push_back({stream, 0, tokens});
    left -= tokens;
  }
  return runs;
}

Result<WorkloadRequest> mooncake_request(const std::string& text) {
  const auto line = parse_object(text);
  if (!line) return failure(line.error());
  const auto timestamp_ms = count_field(*line, "timestamp", std::uint64_t{1} << 42U);
  if (!timestamp_ms) return failure(timestamp_ms.error());
  const auto input = tokens_field(*line, "input_length");
  if (!input) return failure(input.error());
  const auto output = tokens_field(*line, "output_length");
  if (!output) return failure(output.error());
  auto runs = runs_of_ids(*line, *input);
  if (!runs) return failure(runs.error());
  return WorkloadRequest{static_cast<Nanos>(*timestamp_ms) * kMillisecond, *input, *output, 0,
                         std::move(*runs)};
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "2023-11-16 18:17:03.9799600", also with a zone of "+00:00" or "Z" behind it.
std::optional<Nanos> time_in(std::string_view text) {
  if (text.ends_with("+00:00")) text.remove_suffix(6);
  if (text.ends_with("Z")) text.remove_suffix(1);
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto year = number_in(text.substr(0, 4)), month = number_in(text.substr(5, 2)),
             day = number_in(text.substr(8, 2)), hour = number_in(text.substr(11, 2)),
             minute = number_in(text.substr(14, 2)), second = number_in(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  std::uint64_t fraction_ns = 0;
  if (text.size() > 20 && text[19] == '.' && text.size() <= 29) {
    std::string digits(text.substr(20));
    digits.resize(9, '0');
    const auto value = number_in(digits);
    if (!value) return std::nullopt;
    fraction_ns = *value;
  } else if (text.size() != 19) {
    return std::nullopt;
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const auto seconds =
      static_cast<Nanos>(days) * 86'400 + static_cast<Nanos>(*hour * 3600 + *minute * 60 + *second);
  return seconds * kSecond + static_cast<Nanos>(fraction_ns);
}

/// The prompt is filled in by the caller.
Result<WorkloadRequest> azure_request(std::string_view text) {
  const std::size_t first = text.find(','), last = text.rfind(',');
  if (first == std::string_view::npos || first == last) {
    return failure(Code::kInvalidArgument, "not like " + std::string(kAzureHead));
  }
  const auto time = time_in(text.substr(0, first));
  if (!time) {
    return failure(
        Code::kInvalidArgument,
        fmt::format("\"{}\" is no time like 2023-11-16 18:17:03.9799600", text.substr(0, first)));
  }
  const auto input = number_in(text.substr(first + 1, last - first - 1));
  const auto output = number_in(text.substr(last + 1));
  if (!input || !output || *input > kRequestTokensMax || *output > kRequestTokensMax) {
    return failure(Code::kInvalidArgument,
                   fmt::format("its token counts \"{}\" are not two numbers in 0..{}",
                               text.substr(first + 1), kRequestTokensMax));
  }
  return WorkloadRequest{
      *time, static_cast<std::uint32_t>(*input), static_cast<std::uint32_t>(*output), 0, {}};
}

/// Arrivals count from the first request; the conversation is the request's own number.
Status append(Workload& workload, WorkloadRequest request, Nanos& first, Nanos& last,
              const TextLines& lines) {
  if (workload.requests.empty()) first = last = request.arrival_ns;
  if (request.arrival_ns < last) {
    return lines.bad_line("its timestamp is before that of the line above; sort the file by time");
  }
  last = request.arrival_ns;
  request.arrival_ns -= first;
  request.conversation = workload.requests.size();
  workload.requests.push_back(std::move(request));
  return Status::ok();
}

}  // namespace

Result<Workload> read_mooncake(TextLines lines) {
  Workload workload;
  workload.name = lines.path();
  workload.naming = Naming::kWholePrefix;
  workload.timed = true;
  workload.content_tokens = kMooncakeBlockTokens;
  std::string text;
  Nanos first = 0, last = 0;
  for (;;) {
    const auto more = lines.next(text);
    if (!more) return failure(more.error());
    if (!*more) break;
    auto request = mooncake_request(text);
    if (!request) return failure(lines.bad_line(request.error().message()));
    Status status = append(workload, std::move(*request), first, last, lines);
    if (!status.is_ok()) return failure(status);
  }
  if (workload.requests.empty()) return failure(no_requests(lines));
  return workload;
}

Result<Workload> read_azure(TextLines lines) {
  Workload workload;
  workload.name = lines.path();
  workload.timed = true;
  std::string text;
  Nanos first = 0, last = 0;
  const std::uint64_t salt = stream_of(workload.name);
  for (;;) {
    const auto more = lines.next(text);
    if (!more) return failure(more.error());
    if (!*more) break;
    if (lines.number() == 1 && text.starts_with("TIMESTAMP")) continue;
    auto request = azure_request(text);
    if (!request) return failure(lines.bad_line(request.error().message()));
    request->prompt = {{fresh_stream(salt, workload.requests.size()), 0, request->input_tokens}};
    Status status = append(workload, std::move(*request), first, last, lines);
    if (!status.is_ok()) return failure(status);
  }
  if (workload.requests.empty()) return failure(no_requests(lines));
  return workload;
}

Result<Workload> read_trace(const std::string& path) {
  auto lines = TextLines::open(path);
  if (!lines) return failure(lines.error());
  auto probe = TextLines::open(path);
  if (!probe) return failure(probe.error());
  std::string text;
  const auto more = probe->next(text);
  if (!more) return failure(more.error());
  if (!*more) return failure(no_requests(*probe));
  if (text.starts_with("TIMESTAMP")) return read_azure(std::move(*lines));
  const auto first = parse_object(text);
  if (!first) return failure(probe->bad_line(first.error().message()));
  if (first->contains("hash_ids")) return read_mooncake(std::move(*lines));
  if (first->contains("requests")) return read_claude_code(std::move(*lines));
  if (first->contains("runs") || first->contains(kOwnTraceMark)) {
    return read_own_trace(std::move(*lines));
  }
  return failure(probe->bad_line(
      "no known trace: \"hash_ids\" (Mooncake), \"requests\" (Claude Code), \"runs\" (KVStream) "
      "and the CSV head " +
      std::string(kAzureHead) + " are; see docs/traces.md"));
}

}  // namespace kvstream
