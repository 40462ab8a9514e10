// `kvstream replay --virtual-time`.
#include <fmt/format.h>

#include "core/keys.hpp"
#include "core/units.hpp"
#include "launch/replay_command.hpp"
#include "launch/run_files.hpp"
#include "launch/signals.hpp"

namespace kvstream {
namespace {

constexpr Nanos kNoDeadline_ns = 24 * 3600 * kSecond;
/// When nobody names tiers: a node's memory and drive, and a file system, represented.
std::vector<TierSpec> standard_tiers() {
  return {{"host", "host", "", 64ULL << 30U, {}, 0},
          {"nvme", "nvme", "", 2048ULL << 30U, {6'400'000'000, 5'100'000'000, 100'000}, 0},
          {"pfs", "pfs", "", 8192ULL << 30U, {3'200'000'000, 2'600'000'000, 2'000'000}, 0}};
}

}  // namespace

Result<VirtualWork> ReplayCommand::virtual_work(const VirtualOptions& options, std::uint32_t pair,
                                                std::optional<double> rate_per_s) const {
  ReplayConfig config = replay_;
  config.seed += pair;
  if (rate_per_s) config.rate = *rate_per_s;
  // Saturation is looked for in a closed loop: no arrivals are drawn for it.
  if (!rate_per_s && serving_.load > 0) config.arrivals = "closed";
  auto whole = shape_of(config);
  if (!whole) return failure(whole.error());
  const BlockShape shape = shard_shape(*whole, serving_.shards);
  auto trace = load_trace(config, shape, namespace_of(config, shape), serving_.ranks);
  if (!trace) return failure(trace.error());
  const auto earlier =
      config.prefill_store ? std::move(trace->earlier) : std::vector<TraceRequest>{};
  return prepare_virtual(options, trace->requests, earlier, config_.mode.replication);
}

Result<VirtualReplay> ReplayCommand::prepare_virtual_replay() {
  if (config_.tiers.empty()) config_.tiers = standard_tiers();
  for (auto& spec : config_.tiers) {
    if (spec.cap_bytes == 0) {
      return failure(Code::kInvalidArgument,
                     fmt::format("tier {} has no cap; write e.g. cap=2GiB behind it", spec.name));
    }
  }
  const auto shape = shape_of(replay_);
  if (!shape) return failure(shape.error());
  const auto scale = parse_scale(replay_.scale);
  const auto arrivals = arrivals_of(replay_);
  if (!arrivals) return failure(arrivals.error());
  if (serving_.load > 0 && arrivals->process != ArrivalProcess::kPoisson &&
      arrivals->process != ArrivalProcess::kGamma) {
    return failure(
        Code::kInvalidArgument,
        "load: arrivals are drawn at the rate that is found; add --arrivals gamma --cv 4, "
        "or poisson");
  }
  // The policies' nominal rates, and which tier is the rival's, come from what was measured.
  if (Status status = take_nominal_rates(serving_, config_.tiers); !status.is_ok()) {
    return failure(status);
  }
  auto sides = sides_of(line_, config_);
  if (!sides) return failure(sides.error());
  auto slow = slow_events_of(line_, config_);
  if (!slow) return failure(slow.error());
  const bool timeline = !replay_.timeline.empty();
  config_.settings.record_steps = timeline || replay_.calibrate;
  derive_settings(config_, table_, shard_shape(*shape, serving_.shards));
  config_.settings.record_steps = timeline;
  if (table_.source_of("pool") == ValueSource::kDefault) {
    config_.settings.pool_bytes = virtual_pool_bytes(config_, shape->blocks(serving_.token_budget));
  }
  if (table_.source_of("step-deadline") == ValueSource::kDefault) {
    config_.settings.step_deadline_ns = kNoDeadline_ns;
  }
  // A pool that was asked for is a rank's; the one above is enough for one engine.
  if (table_.source_of("pool") == ValueSource::kDefault) {
    config_.settings.pool_bytes *= serving_.shards;
  }
  auto options = virtual_options_of(serving_, model_, config_, scale->time, scale->bytes);
  if (!options) return failure(options.error());

  ReplayOptions real;  // what both kinds of time have in common
  real.serving = serving_options_of(serving_, model_, *shape, scale->time);
  fill_options(real);
  options->serving = *real.serving;
  options->slow = std::move(*slow);
  options->stop = &stop_flag();
  VirtualReplay replay;
  replay.trace_name = replay_.trace;
  replay.about = model_.about;
  replay.options = std::move(*options);
  replay.sides = std::move(*sides);
  replay.pairs = replay_.pairs;
  replay.load = serving_.load;
  replay.timeline_path = replay_.timeline;
  replay.temperature = replay_.prefill_store
                           ? fmt::format("warm: what {} earlier requests left", replay_.skip)
                           : "cold: every side starts from empty tiers";
  return replay;
}

int ReplayCommand::run_virtual() {
  if (launcher_rank() != 0) return kExitGood;  // one process does it all
  catch_signals();
  auto replay = prepare_virtual_replay();
  Status status = replay ? check_writable(line_.json_path) : replay.error();
  if (status.is_ok()) status = check_writable(replay_.timeline);
  if (!status.is_ok()) {
    print_error(status, 0);
    return kExitBadInput;
  }
  ProgressBar bar(replay_.progress, 0);
  replay->options.progress = [&](std::uint64_t done, std::uint64_t all) {
    bar.show("virtual time", done, all);
  };
  replay->work = [&](std::uint32_t pair, std::optional<double> rate) {
    return virtual_work(replay->options, pair, rate);
  };
  auto outcome = run_virtual_replay(*replay);
  bar.wipe();
  if (!outcome && !stop_flag().load()) {
    print_error(outcome.error(), 0);
    return kExitBadInput;
  }
  return print_outcome(outcome, 0, line_.json_path, config_json(line_, table_, config_.tiers));
}

}  // namespace kvstream
