#include <algorithm>
#include <nlohmann/json.hpp>

#include "replay/json_fields.hpp"
#include "replay/streams.hpp"
#include "replay/trace_reader.hpp"

namespace kvstream {
namespace {

/// One line's requests, on their way into the workload.
class Session {
 public:
  Session(Workload& workload, std::uint64_t number, std::uint64_t stream)
      : workload_(workload), number_(number), stream_(stream) {}

  /// Entries with requests of their own (subagents) stand where they were called.
  Status add_all(const nlohmann::json& entries, int depth) {
    for (const auto& entry : entries) {
      ++at_;
      const auto* inner = list_field(entry, "requests");
      if (inner != nullptr && depth >= kDepthMax) return bad("subagents are nested too deep");
      Status status = inner != nullptr ? add_all(*inner, depth + 1) : add(entry);
      if (!status.is_ok()) return status;
    }
    return Status::ok();
  }

 private:
  static constexpr int kDepthMax = 8;

  Status bad(const std::string& what) const {
    return {Code::kInvalidArgument, "entry " + std::to_string(at_) + " of its requests: " + what};
  }

  Status add(const nlohmann::json& entry) {
    if (!entry.is_object()) return bad("not a JSON object");
    const auto input = tokens_field(entry, "in");
    if (!input) return bad(input.error().message());
    const auto output = tokens_field(entry, "out");
    if (!output) return bad(output.error().message());
    const auto* runs = list_field(entry, "hash_runs");
    if (runs == nullptr) return bad("\"hash_runs\" is missing or no list");
    WorkloadRequest request{0, *input, *output, number_, {}};
    request.prompt.reserve(runs->size() + 1);
    std::uint32_t left = *input;
    const std::uint32_t block = workload_.content_tokens;
    for (const auto& run : *runs) {
      if (!run.is_array() || run.size() != 2 || !run[0].is_number_unsigned() ||
          !run[1].is_number_unsigned() ||
          (run[0].get<std::uint64_t>() + run[1].get<std::uint64_t>()) > UINT32_MAX / block) {
        return bad("\"hash_runs\" holds " + run.dump().substr(0, 40) + ", not [first id, count]");
      }
      const auto first = run[0].get<std::uint32_t>() * block;
      const std::uint32_t tokens = std::min(left, run[1].get<std::uint32_t>() * block);
      if (tokens > 0) request.prompt.push_back({stream_, first, tokens});
      left -= tokens;
    }
    // What the ids do not cover is less than a block that no later request is known to repeat.
    if (left > 0) request.prompt.push_back({fresh_stream(stream_, at_), 0, left});
    workload_.requests.push_back(std::move(request));
    return Status::ok();
  }

  Workload& workload_;
  std::uint64_t number_, stream_;
  std::uint64_t at_ = 0;
};

Status add_session(Workload& workload, const std::string& text, std::uint64_t number) {
  const auto line = parse_object(text);
  if (!line) return line.error();
  const auto block = count_field(*line, "block_size", 1U << 20U);
  if (!block) return block.error();
  const auto* requests = list_field(*line, "requests");
  if (requests == nullptr) {
    return {Code::kInvalidArgument, "\"requests\" is missing or no list"};
  }
  if (*block == 0 || (number > 0 && *block != workload.content_tokens)) {
    return {Code::kInvalidArgument,
            "\"block_size\" is " + std::to_string(*block) +
                "; one size > 0 for all lines is wanted: split the file by it"};
  }
  workload.content_tokens = static_cast<std::uint32_t>(*block);
  const auto id = text_field(*line, "id");
  const auto scope = text_field(*line, "hash_id_scope");
  const bool own_ids = !scope || *scope == "local";
  const std::uint64_t stream = !own_ids ? stream_of(workload.name)
                               : id     ? stream_of(*id)
                                        : fresh_stream(stream_of(workload.name), number);
  return Session(workload, number, stream).add_all(*requests, 0);
}

}  // namespace

Result<Workload> read_claude_code(TextLines lines) {
  Workload workload;
  workload.name = lines.path();
  std::string text;
  for (std::uint64_t number = 0;; ++number) {
    const auto more = lines.next(text);
    if (!more) return failure(more.error());
    if (!*more) break;
    Status status = add_session(workload, text, number);
    if (!status.is_ok()) return failure(lines.bad_line(status.message()));
  }
  if (workload.requests.empty()) {
    return failure(Code::kInvalidArgument, lines.path() + " has no requests; is it whole?");
  }
  return workload;
}

}  // namespace kvstream
