#include "launch/trace_command.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/logging.hpp"
#include "launch/exit_codes.hpp"
#include "launch/run_files.hpp"
#include "replay/own_trace.hpp"
#include "replay/trace_summary.hpp"

namespace kvstream {
namespace {

constexpr char kDescription[] =
    "Says what a trace or a generator holds: lengths, sharing, reuse, arrivals. No tier is "
    "touched.";
constexpr char kExamples[] = R"(Examples:
  kvstream trace trace.jsonl
  kvstream trace agent --sharing 0.5 --block-tokens 64
  kvstream trace sessions.jsonl.zst --requests 4000 --cut-sharing 0.04 \
      --arrivals gamma --cv 4 --rate 2 --out cut.jsonl.zst)";

void print_lengths(const char* what, const Summary& summary) {
  fmt::print("{:<18} mean {:.1f}, p50 {:.0f}, p90 {:.0f}, p99 {:.0f}, max {:.0f}\n", what,
             summary.mean, summary.p50, summary.p90, summary.p99, summary.max);
}

void print_text(const std::string& name, const TraceSummary& summary, const BlockShape& shape) {
  fmt::print("{:<18} {}\n", "trace", name);
  fmt::print("{:<18} {} in {} conversations\n", "requests", summary.requests,
             summary.conversations);
  fmt::print("{:<18} {} prompt, {} output\n", "tokens", summary.prompt_tokens,
             summary.output_tokens);
  print_lengths("prompt tokens", summary.input);
  print_lengths("output tokens", summary.output);
  fmt::print(
      "{:<18} {} of {} tokens, {} distinct (at most {:.1f} GB of KV), {:.1f} % of them used "
      "once\n",
      "blocks", summary.blocks, shape.block_tokens, summary.distinct_blocks,
      summary.distinct_represented_b / 1e9, 100 * summary.distinct_used_once);
  fmt::print("{:<18} {:.2f} % of prompt tokens lie in blocks of an earlier prompt\n", "sharing",
             100 * summary.sharing);
  print_lengths("reuse distance", summary.reuse_distance_blocks);
  fmt::print("{:<18} (distinct blocks between two uses)\n", "");
  if (summary.arrival_rate_per_s > 0) {
    fmt::print("{:<18} {:.4f} requests/s, gaps with a CV of {:.2f}\n", "arrivals",
               summary.arrival_rate_per_s, summary.arrival_cv);
  } else {
    fmt::print("{:<18} none\n", "arrivals");
  }
}

}  // namespace

TraceCommand::TraceCommand(CLI::App& app) : app_(app.add_subcommand("trace", kDescription)) {
  add_engine_settings(table_, config_);
  add_replay_settings(table_, replay_);
  app_->footer(kExamples);
  add_options(*app_, table_, line_);
  app_->add_option_function<std::string>(
      "TRACE", [this](const std::string& text) { line_.values["trace"] = text; }, "as --trace");
  app_->add_option("--out", out_path_, "write it there in KVStream's own format; .zst packs it");
}

Status TraceCommand::describe() {
  if (Status status = apply(line_, table_, config_); !status.is_ok()) return status;
  if (Status status = setup_logging(0, config_.log); !status.is_ok()) return status;
  const auto shape = shape_of(replay_);
  if (!shape) return shape.error();
  const auto workload = workload_of(replay_);
  if (!workload) return workload.error();
  const auto requests =
      make_requests(*workload, *shape, replay_.tail, namespace_of(replay_, *shape));
  const auto summary = summarize_trace(requests, *shape, workload->timed);
  if (line_.json_path != "-") print_text(workload->name, summary, *shape);
  if (!line_.json_path.empty()) {
    nlohmann::json json = to_json(summary);
    json["trace"] = workload->name;
    json["config"] = table_.to_json();
    if (Status status = write_json(line_.json_path, json); !status.is_ok()) return status;
  }
  return out_path_.empty() ? Status::ok() : write_own_trace(*workload, out_path_);
}

int TraceCommand::run() {
  const Status status = describe();
  if (status.is_ok()) return kExitGood;
  print_error(status, 0);
  return kExitBadInput;
}

}  // namespace kvstream
