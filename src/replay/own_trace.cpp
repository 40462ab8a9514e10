#include "replay/own_trace.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "replay/json_fields.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr std::string_view kContentName = "content", kWholePrefixName = "whole-prefix";
constexpr double kArrivalMax_s = 9e9;  // nanoseconds in 64 bits

Status take_head(const nlohmann::json& head, Workload& workload) {
  const auto version = count_field(head, kOwnTraceMark, kVersion);
  if (!version) return version.error();
  if (const auto name = text_field(head, "name")) workload.name = *name;
  const auto naming = text_field(head, "naming");
  if (!naming) return naming.error();
  if (*naming != kContentName && *naming != kWholePrefixName) {
    return {Code::kInvalidArgument, fmt::format("\"naming\" is \"{}\", not {} or {}", *naming,
                                                kContentName, kWholePrefixName)};
  }
  workload.naming = *naming == kContentName ? Naming::kContent : Naming::kWholePrefix;
  const auto timed = head.find("timed");
  if (timed == head.end() || !timed->is_boolean()) {
    return {Code::kInvalidArgument, "\"timed\" is not true or false"};
  }
  workload.timed = timed->get<bool>();
  const auto tokens = count_field(head, "content_tokens", 1U << 20U);
  if (!tokens) return tokens.error();
  workload.content_tokens = std::max(1U, static_cast<std::uint32_t>(*tokens));
  return Status::ok();
}

Result<std::vector<TokenRun>> runs_of(const nlohmann::json& line, std::uint32_t input) {
  const auto* list = list_field(line, "runs");
  if (list == nullptr) return failure(Code::kInvalidArgument, "\"runs\" is missing or no list");
  std::vector<TokenRun> runs;
  runs.reserve(list->size());
  std::uint64_t sum = 0;
  for (const auto& run : *list) {
    bool good = run.is_array() && run.size() == 3;
    for (std::size_t i = 0; good && i < 3; ++i) good = run[i].is_number_unsigned();
    good = good && run[1].get<std::uint64_t>() <= UINT32_MAX &&
           run[2].get<std::uint64_t>() <= UINT32_MAX - run[1].get<std::uint64_t>();
    if (!good) {
      return failure(Code::kInvalidArgument,
                     "\"runs\" holds " + run.dump().substr(0, 40) + ", not [stream, first, count]");
    }
    runs.push_back(
        {run[0].get<std::uint64_t>(), run[1].get<std::uint32_t>(), run[2].get<std::uint32_t>()});
    sum += runs.back().count;
  }
  if (sum != input) {
    return failure(
        Code::kInvalidArgument,
        fmt::format("\"runs\" cover {} tokens, \"input\" says {}; make them equal", sum, input));
  }
  return runs;
}

Result<WorkloadRequest> own_request(const nlohmann::json& line, bool timed, std::uint64_t number) {
  WorkloadRequest request;
  if (timed) {
    const auto arrival_s = number_field(line, "arrival_s");
    if (!arrival_s) return failure(arrival_s.error());
    if (*arrival_s > kArrivalMax_s) {
      return failure(Code::kInvalidArgument, "\"arrival_s\" is too large");
    }
    request.arrival_ns = std::llround(*arrival_s * 1e9);
  }
  const auto input = tokens_field(line, "input");
  if (!input) return failure(input.error());
  const auto output = tokens_field(line, "output");
  if (!output) return failure(output.error());
  auto runs = runs_of(line, *input);
  if (!runs) return failure(runs.error());
  request.input_tokens = *input;
  request.output_tokens = *output;
  request.conversation = number;
  if (line.contains("conversation")) {
    const auto conversation = count_field(line, "conversation", UINT64_MAX);
    if (!conversation) return failure(conversation.error());
    request.conversation = *conversation;
  }
  request.prompt = std::move(*runs);
  return request;
}

std::string text_of(const Workload& workload) {
  const nlohmann::json head = {
      {kOwnTraceMark, kVersion},
      {"name", workload.name},
      {"naming", workload.naming == Naming::kContent ? kContentName : kWholePrefixName},
      {"timed", workload.timed},
      {"content_tokens", workload.content_tokens}};
  std::string text = head.dump() + "\n";
  auto out = std::back_inserter(text);
  for (const auto& request : workload.requests) {
    text += '{';
    if (workload.timed) {
      fmt::format_to(out, "\"arrival_s\":{}.{:09},", request.arrival_ns / kSecond,
                     request.arrival_ns % kSecond);
    }
    fmt::format_to(out, "\"input\":{},\"output\":{},\"conversation\":{},\"runs\":[",
                   request.input_tokens, request.output_tokens, request.conversation);
    const char* comma = "";
    for (const auto& run : request.prompt) {
      fmt::format_to(out, "{}[{},{},{}]", comma, run.stream, run.first, run.count);
      comma = ",";
    }
    text += "]}\n";
  }
  return text;
}

Result<std::string> packed(const std::string& text, const std::string& path) {
  std::string result(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress(result.data(), result.size(), text.data(), text.size(), ZSTD_CLEVEL_DEFAULT);
  if (ZSTD_isError(size) != 0) {
    return failure(Code::kUnavailable, fmt::format("failed to pack {} ({}); leave out the .zst",
                                                   path, ZSTD_getErrorName(size)));
  }
  result.resize(size);
  return result;
}

}  // namespace

Result<Workload> read_own_trace(TextLines lines) {
  Workload workload;
  workload.name = lines.path();
  bool begun = false;
  std::string text;
  for (;;) {
    const auto more = lines.next(text);
    if (!more) return failure(more.error());
    if (!*more) break;
    const auto line = parse_object(text);
    if (!line) return failure(lines.bad_line(line.error().message()));
    if (!begun) {
      begun = true;
      workload.timed = line->contains("arrival_s");
      if (line->contains(kOwnTraceMark)) {
        const Status status = take_head(*line, workload);
        if (!status.is_ok()) return failure(lines.bad_line(status.message()));
        continue;
      }
    }
    auto request = own_request(*line, workload.timed, workload.requests.size());
    if (!request) return failure(lines.bad_line(request.error().message()));
    if (!workload.requests.empty() && request->arrival_ns < workload.requests.back().arrival_ns) {
      return failure(
          lines.bad_line("its arrival is before that of the line above; sort the file by time"));
    }
    workload.requests.push_back(std::move(*request));
  }
  if (workload.requests.empty()) {
    return failure(Code::kInvalidArgument, lines.path() + " has no requests; is it whole?");
  }
  return workload;
}

Status write_own_trace(const Workload& workload, const std::string& path) {
  std::string text = text_of(workload);
  if (path.ends_with(".zst")) {
    auto small = packed(text, path);
    if (!small) return small.error();
    text = std::move(*small);
  }
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    return {Code::kIoError, fmt::format("failed to write {} B to {} ({})", text.size(), path,
                                        std::strerror(errno))};
  }
  return Status::ok();
}

}  // namespace kvstream
