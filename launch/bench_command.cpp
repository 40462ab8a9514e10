#include "launch/bench_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/tier_spec.hpp"
#include "core/keys.hpp"
#include "core/logging.hpp"
#include "core/units.hpp"
#include "launch/job.hpp"
#include "launch/replay_command.hpp"
#include "launch/run_files.hpp"
#include "launch/signals.hpp"
#include "replay/agreement.hpp"
#include "replay/random.hpp"

namespace kvstream {
namespace {

constexpr char kStepExamples[] = R"(Example:
  kvstream bench step --tier nvme=nvme:/mnt/a,cap=2GiB,read=500MB/s,write=400MB/s \
      --tier pfs=pfs:/mnt/b,cap=2GiB,read=250MB/s,write=200MB/s --block 1MiB --step 500MB \
      --policy serial,pooled,static,shortest-queue,completion --pairs 7
  ... --slow pfs@0.1=1/10      the PFS falls to a tenth, 0.1 s after each side began
  ... --nominal nvme=250MB/s,pfs=500MB/s     what `static` believes)";
constexpr std::array<std::string_view, 3> kProgressNames = {"auto", "always", "never"};
constexpr std::uint64_t kFolderBytes = 256U << 20U;

/// One step's requests: `bytes` in blocks, dealt over `count` requests, keys that no other has.
void add_step_requests(std::vector<TraceRequest>& requests, std::uint64_t bytes,
                       std::uint32_t block_bytes, std::uint32_t count, std::uint64_t first_id,
                       const BlockKey& namespace_key) {
  const std::uint64_t blocks = std::max<std::uint64_t>(1, bytes / block_bytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    TraceRequest request;
    for (std::uint64_t b = i * blocks / count; b < (i + 1) * blocks / count; ++b) {
      request.keys.push_back(external_key(namespace_key, first_id + b));
      request.sizes_bytes.push_back(block_bytes);
    }
    request.input_tokens = static_cast<std::uint32_t>(request.keys.size());
    if (!request.keys.empty()) requests.push_back(std::move(request));
  }
}

Status set_nominal(std::string_view text, std::vector<TierSpec>& tiers) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto tier = std::find_if(tiers.begin(), tiers.end(), [&](const TierSpec& spec) {
      return spec.name == part.substr(0, equals);
    });
    const auto rate = parse_rate(part.substr(std::min(equals + 1, part.size())));
    if (tier == tiers.end() || !rate) {
      return {Code::kInvalidArgument,
              fmt::format("nominal: \"{}\" is not TIER=RATE of a tier that was given", part)};
    }
    tier->nominal_read_bytes_per_s = *rate;
  }
  return Status::ok();
}

Result<std::uint64_t> mask_of(std::string_view text, const std::vector<TierSpec>& tiers) {
  if (text == "all") return (std::uint64_t{1} << (tiers.size() - 1) << 1U) - 1;
  std::uint64_t mask = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view name = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto tier = std::find_if(tiers.begin(), tiers.end(),
                                   [&](const TierSpec& spec) { return spec.name == name; });
    if (tier == tiers.end()) {
      return failure(Code::kInvalidArgument,
                     fmt::format("held-by names \"{}\", which is no tier", name));
    }
    mask |= std::uint64_t{1} << (tier - tiers.begin());
  }
  return mask;
}

}  // namespace

BenchCommand::BenchCommand(CLI::App& app)
    : app_(app.add_subcommand("bench", "Small measurements, each of one question.")) {
  app_->require_subcommand(1);
  step_ = app_->add_subcommand("step", "Read steps of a given size, under several policies.");
  add_step(*step_);
  folder_ = app_->add_subcommand("folder", "How fast the disk below a folder can be read, raw.");
  folder_->add_option("DIR", folder_path_, "a folder that can be written")->required();
  folder_->add_option("--json", line_.json_path, "write the figures there; - = to stdout");
  fit_ = app_->add_subcommand("fit", "Measure tiers for `kvstream replay --virtual-time --fit`.");
  add_fit(*fit_);
}

void BenchCommand::add_step(CLI::App& app) {
  using enum ValueKind;
  add_engine_settings(table_, config_);
  table_.add({.name = "block",
              .kind = kSize,
              .help = "bytes of a block",
              .unit = "B",
              .target = &block_bytes_,
              .min = 1,
              .max = 1U << 28U});
  table_.add({.name = "step",
              .kind = kSize,
              .help = "bytes of a step",
              .unit = "B",
              .target = &step_bytes_,
              .min = 1});
  table_.add({.name = "requests",
              .kind = kCount,
              .help = "requests that a step's blocks belong to",
              .target = &requests_,
              .min = 1,
              .max = 4096});
  table_.add({.name = "steps",
              .kind = kCount,
              .help = "steps of a side, one after the other",
              .target = &steps_,
              .min = 1,
              .max = 10000});
  table_.add({.name = "pairs",
              .kind = kCount,
              .help = "how often each side is played, interleaved",
              .target = &pairs_,
              .min = 1,
              .max = 1000});
  table_.add({.name = "held-by",
              .kind = kText,
              .help = "names of the tiers that hold every block, or all",
              .target = &held_by_});
  table_.add({.name = "nominal",
              .kind = kText,
              .help = "TIER=RATE,...: what the static policy believes",
              .target = &nominal_});
  table_.add({.name = "seed", .kind = kCount, .help = "of the blocks' keys", .target = &seed_});
  table_.add({.name = "calibrate",
              .kind = kSwitch,
              .help = "measure the devices that are not throttled before and after",
              .target = &calibrate_});
  table_.add({.name = "bootstrap",
              .kind = kText,
              .help = "how ranks find each other: auto, mpi, solo, file:DIR",
              .target = &bootstrap_});
  table_.add({.name = "progress",
              .kind = kChoice,
              .help = "a bar on stderr; auto: when that is a terminal",
              .target = choice_target(&progress_, kProgressNames)});
  app.footer(kStepExamples);
  add_options(app, table_, line_);
  add_comparison_options(app, line_);
}

int BenchCommand::run() {
  if (fit_->parsed()) return run_fit();
  return step_->parsed() ? run_step() : run_folder();
}

int BenchCommand::run_step() {
  const std::uint32_t rank = launcher_rank();
  Status status = apply(line_, table_, config_);
  if (status.is_ok()) status = set_nominal(nominal_, config_.tiers);
  if (status.is_ok() && config_.tiers.empty()) {
    status = {Code::kInvalidArgument, "bench step needs tiers: --tier NAME=KIND:PATH,cap=SIZE"};
  }
  if (status.is_ok()) status = setup_logging(rank, config_.log);
  if (!status.is_ok()) {
    print_error(status, rank);
    return kExitBadInput;
  }
  auto bootstrap = open_bootstrap(bootstrap_, config_.node);
  if (!bootstrap) {
    print_error(bootstrap.error(), rank);
    return kExitBadInput;
  }
  catch_signals();
  const int code = run_step_in(**bootstrap);
  if ((*bootstrap)->leave()) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}

Status BenchCommand::prepare(const Group& group, ReplayOptions& options, JobOptions& job) {
  BlockShape shape;
  shape.block_tokens = 1;
  shape.kv_bytes_per_token = static_cast<double>(block_bytes_);
  options.loop.shape = shape;
  Namespace ns;
  ns.model = "bench step";
  ns.dtype = fmt::format("{} B a block", block_bytes_);
  const BlockKey namespace_key = kvstream::namespace_key(ns);
  const auto block = static_cast<std::uint32_t>(block_bytes_);
  // Requests are dealt to ranks in turn, so that each rank's steps are whole.
  std::vector<std::vector<TraceRequest>> of_rank(group.size());
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    for (std::uint32_t step = 0; step < steps_; ++step) {
      const std::uint64_t first = mix64(seed_) ^ (std::uint64_t{rank} * steps_ + step) << 32U;
      add_step_requests(of_rank[rank], step_bytes_, block, requests_, first, namespace_key);
    }
  }
  for (std::size_t i = 0; i < of_rank.front().size(); ++i) {
    for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
      options.requests.push_back(std::move(of_rank[rank][i]));
      options.requests.back().rank = rank;
    }
  }
  auto sides = sides_of(line_, config_);
  if (!sides) return sides.error();
  options.sides = std::move(*sides);
  auto slow = slow_events_of(line_, config_);
  if (!slow) return slow.error();
  options.slow = std::move(*slow);
  const auto mask = mask_of(held_by_, config_.tiers);
  if (!mask) return mask.error();
  options.held_by = *mask;
  derive_settings(config_, table_, shape);
  job.namespace_fingerprint = namespace_fingerprint(namespace_key);
  job.other_bytes = 2 * step_bytes_;
  return group.rank() == 0 ? check_writable(line_.json_path) : Status::ok();
}

int BenchCommand::run_step_in(Bootstrap& bootstrap) {
  Group& group = bootstrap.group();
  ReplayOptions options;
  JobOptions job_options;
  const Status status = agree(group, prepare(group, options, job_options));
  if (!status.is_ok()) {
    print_error(status, group.rank());
    return kExitBadInput;
  }
  options.trace_name =
      fmt::format("{} step(s) of {} in blocks of {}, {} requests each, held by {}", steps_,
                  format_size(step_bytes_), format_size(block_bytes_), requests_, held_by_);
  options.prefill = Prefill::kHeld;
  options.loop.batch = requests_;
  options.pairs = pairs_;
  options.calibrate = calibrate_ ? Calibrate::kOn : Calibrate::kOff;
  job_options.config = config_;
  job_options.clock = &SteadyClock::instance();
  auto job = Job::open(bootstrap, std::move(job_options));
  if (!job) {
    print_error(job.error(), group.rank());
    return kExitBadInput;
  }
  config_.tiers = (*job)->config().tiers;
  return play_and_report(bootstrap, **job, std::move(options), progress_, line_.json_path,
                         config_json(line_, table_, config_.tiers));
}

int BenchCommand::run_folder() {
  const std::string path = folder_path_ + "/.kvstream-bench-" + std::to_string(::getpid());
  const auto rate = [&]() -> Result<DeviceRate> {
    auto target = scratch_target("folder", path, kFolderBytes, 1U << 20U);
    if (!target) return failure(target.error());
    CalibrationOptions options;
    auto rates = measure_rates(std::span(&*target, 1), options);
    if (!rates) return failure(rates.error());
    return rates->front();
  }();
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (!rate) {
    print_error(rate.error(), 0);
    return kExitBadInput;
  }
  const nlohmann::json json = {{"folder", folder_path_},
                               {"read_bytes_per_s", rate->bytes_per_s},
                               {"mode", rate->mode},
                               {"count_agrees", rate->count_agrees()}};
  if (line_.json_path.empty()) {
    fmt::print("{}: {} read ({})\n", folder_path_, format_rate(rate->bytes_per_s), rate->mode);
    return kExitGood;
  }
  const Status written = write_json(line_.json_path, json);
  if (!written.is_ok()) print_error(written, 0);
  return written.is_ok() ? kExitGood : kExitWrong;
}

}  // namespace kvstream
