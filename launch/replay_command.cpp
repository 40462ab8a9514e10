#include "launch/replay_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "config/tier_spec.hpp"
#include "core/keys.hpp"
#include "core/logging.hpp"
#include "launch/job.hpp"
#include "launch/on_stop.hpp"
#include "launch/run_files.hpp"
#include "launch/signals.hpp"
#include "replay/agreement.hpp"

namespace kvstream {
namespace {

constexpr char kDescription[] =
    "Plays a trace's requests through real tiers, with real bytes, and says how fast it was, "
    "against which bound, and that every byte was right.";
constexpr char kExamples[] = R"(Examples:
  kvstream replay
      the built-in generator through host, nvme and pfs directories under a temporary folder
  kvstream replay trace.jsonl --requests 300 --tier nvme=nvme:/local/kv,cap=8GiB \
      --tier pfs=pfs:/scratch/kv,cap=64GiB
      real devices; the directories are kept, and the next run starts warm
  kvstream replay trace.jsonl --skip 9000 --prefill-store --requests 300 --pairs 7 \
      --policy serial,pooled,static,shortest-queue,completion --json run.json
      five policies from the same warm contents, with intervals
  kvstream replay agent --requests 400 --arrivals gamma --cv 4 --rate 0.5
  kvstream replay --side rival --side rival-deferred --side no-cache --side completion
  mpirun -n 4 kvstream replay trace.jsonl
Exit codes: 0 good; 1 a wrong byte, an account that did not close, a run that failed;
2 bad input; 130 interrupted.)";

std::uint64_t write_queue_of(const Settings& settings) {
  return settings.write_queue_bytes_max != 0 ? settings.write_queue_bytes_max
                                             : settings.pool_bytes / 4;
}

/// The bytes that a rank's two step buffers take.
std::uint64_t step_bytes(const std::vector<TraceRequest>& requests, std::uint32_t batch,
                         const Group& group) {
  std::vector<TraceRequest> mine;
  for (const auto& request : requests) {
    if (request.rank == group.rank()) mine.push_back(request);
  }
  return 2 * largest_step_bytes(mine, batch);
}

}  // namespace

ReplayCommand::ReplayCommand(CLI::App& app) : app_(app.add_subcommand("replay", kDescription)) {
  config_.settings.record_steps = true;
  add_engine_settings(table_, config_);
  add_replay_settings(table_, replay_);
  add_serving_settings(table_, serving_);
  app_->footer(kExamples);
  add_options(*app_, table_, line_);
  app_->add_option_function<std::string>(
      "TRACE", [this](const std::string& text) { line_.values["trace"] = text; }, "as --trace");
  add_comparison_options(*app_, line_);
}

void derive_settings(EngineConfig& config, const SettingsTable& table, const BlockShape& shape) {
  const std::uint32_t rounded = (shape.block_bytes_max() + 4095U) & ~4095U;
  if (table.source_of("block-max") == ValueSource::kDefault ||
      config.settings.block_bytes_max < rounded) {
    config.settings.block_bytes_max = rounded;
  }
  config.settings.record_steps = true;
}

int ReplayCommand::run() {
  const std::uint32_t rank = launcher_rank();
  Status status = apply(line_, table_, config_);
  if (status.is_ok()) status = setup_logging(rank, config_.log);
  if (status.is_ok()) status = derive_model();
  if (!status.is_ok()) {
    print_error(status, rank);
    return kExitBadInput;
  }
  if (serving_.virtual_time) return run_virtual();
  auto bootstrap = open_bootstrap(replay_.bootstrap, config_.node);
  if (!bootstrap) {
    print_error(bootstrap.error(), rank);
    return kExitBadInput;
  }
  catch_signals();
  const int code = run_in(**bootstrap);
  if ((*bootstrap)->leave()) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}

/// What follows from the engine's model, before anything else is made of the settings.
Status ReplayCommand::derive_model() {
  if (serving_.virtual_time) serving_.form = EngineForm::kVllm;
  if (serving_.form == EngineForm::kPlain && serving_.shards > 1) {
    return {Code::kInvalidArgument,
            "shards: the plain loop knows no tensor-parallel parts; add --engine vllm"};
  }
  if (serving_.load > 0 && !serving_.virtual_time) {
    return {Code::kInvalidArgument, "load: saturation is found in virtual time (--virtual-time)"};
  }
  if (serving_.form == EngineForm::kPlain) return Status::ok();
  if (serving_.virtual_time && table_.source_of("scale") == ValueSource::kDefault) {
    replay_.scale = "bytes=1,time=1";
  }
  auto model = serving_model_of(serving_);
  if (!model) return model.error();
  model_ = std::move(*model);
  if (table_.source_of("kv-bytes-per-token") == ValueSource::kDefault) {
    replay_.kv_bytes_per_token = static_cast<std::uint64_t>(model_.model.kv_bytes_per_token);
  }
  return Status::ok();
}

Status ReplayCommand::prepare(const Group& group, ReplayOptions& options, JobOptions& job) {
  const auto whole = shape_of(replay_);
  if (!whole) return whole.error();
  const BlockShape shape = shard_shape(*whole, serving_.shards);
  const BlockKey namespace_key = namespace_of(replay_, shape);
  auto trace = load_trace(replay_, shape, namespace_key, group.size());
  if (!trace) return trace.error();
  options.earlier = std::move(trace->earlier);
  options.requests = std::move(trace->requests);
  options.loop.shape = shape;
  options.loop.time_scale = parse_scale(replay_.scale)->time;
  auto sides = sides_of(line_, config_);
  if (!sides) return sides.error();
  options.sides = std::move(*sides);
  auto slow = slow_events_of(line_, config_);
  if (!slow) return slow.error();
  options.slow = std::move(*slow);
  derive_settings(config_, table_, shape);
  if (serving_.form == EngineForm::kVllm) {
    options.serving = serving_options_of(serving_, model_, *whole, options.loop.time_scale);
    options.about = model_.about;
  }
  job.shards = serving_.shards;
  job.namespace_fingerprint = namespace_fingerprint(namespace_key);
  job.other_bytes = options.serving ? serving_.shards * serving_memory_bytes(*options.serving)
                                    : step_bytes(options.requests, replay_.batch, group);
  if (group.rank() != 0) return Status::ok();
  if (Status status = check_writable(replay_.timeline); !status.is_ok()) return status;
  return check_writable(line_.json_path);
}

void ReplayCommand::fill_options(ReplayOptions& options) const {
  options.trace_name = replay_.trace;
  options.prefill = replay_.prefill_store ? Prefill::kOn : Prefill::kOff;
  options.loop.batch = replay_.batch;
  const auto arrivals = parse_arrivals(replay_.arrivals);
  const bool closed = !arrivals || arrivals->process == ArrivalProcess::kClosed;
  options.loop.arrivals = closed ? Arrivals::kClosed : Arrivals::kTrace;
  const std::uint32_t at_a_time = arrivals ? arrivals->concurrency : 0;
  if (at_a_time != 0) options.loop.batch = at_a_time;
  if (options.serving) {
    ServingOptions& serving = *options.serving;
    serving.arrivals = options.loop.arrivals;
    serving.in_system_max = at_a_time != 0 ? at_a_time : serving_.sequences;
    serving.verify = replay_.verify ? Verify::kOn : Verify::kOff;
    serving.step_deadline_ns = config_.settings.step_deadline_ns;
    serving.lease_ns = config_.settings.lease_ns;
    serving.waited_save_bytes =
        write_queue_of(shard_settings(config_.settings, serving_.shards)) / 2;
  }
  options.loop.prefill_tokens_per_s = replay_.prefill_tokens_per_s;
  options.loop.decode_tokens_per_s = replay_.decode_tokens_per_s;
  options.loop.verify = replay_.verify ? Verify::kOn : Verify::kOff;
  options.pairs = replay_.pairs;
  options.replication = config_.mode.replication;
  options.calibrate = replay_.calibrate ? Calibrate::kOn : Calibrate::kOff;
  options.calibration.measure_ns = kSecond;
  options.timeline_path = replay_.timeline;
}

int ReplayCommand::run_in(Bootstrap& bootstrap) {
  Group& group = bootstrap.group();
  ReplayOptions options;
  JobOptions job_options;
  // Bad input of any kind is found on every rank, and said once.
  const Status status = agree(group, prepare(group, options, job_options));
  if (!status.is_ok()) {
    print_error(status, group.rank());
    return kExitBadInput;
  }
  fill_options(options);
  job_options.config = config_;
  job_options.clock = &SteadyClock::instance();
  auto job = Job::open(bootstrap, std::move(job_options));
  if (!job) {
    print_error(job.error(), group.rank());
    return kExitBadInput;
  }
  config_.tiers = (*job)->config().tiers;
  return play_and_report(bootstrap, **job, std::move(options), replay_.progress, line_.json_path,
                         config_json(line_, table_, config_.tiers));
}

int print_outcome(Result<ReplayOutcome>& outcome, std::uint32_t rank, const std::string& json_path,
                  const nlohmann::json& config) {
  if (!outcome) {
    print_error(outcome.error(), rank);
    return stop_flag().load() ? kExitInterrupted : kExitWrong;
  }
  int code = kExitGood;
  if (rank == 0) {
    outcome->json["config"] = config;
    outcome->json["interrupted"] = outcome->interrupted;
    if (json_path != "-") fmt::print("{}", outcome->table);
    const Status written = json_path.empty() ? Status::ok() : write_json(json_path, outcome->json);
    if (!written.is_ok()) {
      print_error(written, 0);
      code = kExitWrong;
    }
  }
  if (!outcome->good) {
    print_error({Code::kCorrupt, outcome->why_not}, rank);
    return kExitWrong;
  }
  if (!outcome->interrupted) return code;
  print_error({Code::kClosed, "interrupted; the report covers what was played"}, rank);
  return kExitInterrupted;
}

int play_and_report(Bootstrap& bootstrap, Job& job, ReplayOptions options, ProgressMode progress,
                    const std::string& json_path, const nlohmann::json& config) {
  Group& group = bootstrap.group();
  const Settings& settings = job.settings();
  options.write_queue_bytes = write_queue_of(settings);
  options.block_bytes_max = settings.block_bytes_max;
  options.copy_threads = settings.copy_threads * static_cast<std::uint32_t>(job.engines().size());
  options.loop.step_deadline_ns = settings.step_deadline_ns;
  options.loop.waited_save_bytes = options.write_queue_bytes / 2;
  ProgressBar bar(progress, group.rank());
  ReplayParts parts;
  parts.engines = job.engines();
  parts.group = &group;
  parts.clock = &SteadyClock::instance();
  parts.stop = &stop_flag();
  parts.tiers = job.tiers();
  parts.full_speed = [&job](bool lifted) { job.full_speed(lifted); };
  parts.set_speed = [&job](const std::string& tier, double factor) { job.set_speed(tier, factor); };
  parts.open_probe = [&job](std::size_t tier) { return job.open_probe(tier); };
  parts.progress = [&bar](const std::string& what, std::uint64_t done, std::uint64_t all) {
    bar.show(what, done, all);
  };
  options.calibration.stop = parts.stop;
  auto outcome = [&] {
    // What is still to be written then goes at the devices' own speed: the end waits for it.
    const OnStop unthrottled([&job] { job.full_speed(true); });
    return run_replay(options, parts);
  }();
  bar.wipe();
  const int code = print_outcome(outcome, group.rank(), json_path, config);
  std::fflush(stdout);
  if (job.close()) {
    std::fflush(nullptr);
    ::_exit(code == kExitGood ? kExitWrong : code);
  }
  return code;
}

}  // namespace kvstream
