#include "launch/serving_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/units.hpp"
#include "launch/job.hpp"
#include "replay/fit_file.hpp"

namespace kvstream {
namespace {

constexpr std::array<std::string_view, 2> kFormNames = {"plain", "vllm"};
constexpr std::array<std::string_view, 2> kLoadsNames = {"sync", "async"};
/// Of virtual time where nothing was measured, represented: threads that check and copy.
constexpr double kCopyRate = 8e9;
constexpr std::uint32_t kCopyThreadsMin = 4;
constexpr double kMemoryRate = 20e9;
/// A pool that holds what some steps of the modelled engine bring and make (a quarter of it is
/// for writes).
constexpr std::uint64_t kPoolBlocksMin = 512;
constexpr std::uint64_t kPoolSteps = 16;

Result<DeviceModel> model_of(const TierSpec& spec, const Fit& fit, bool fitted, double rate_scale) {
  const auto found = fit.tiers.find(spec.name);
  DeviceModel model;
  if (found != fit.tiers.end()) model = found->second;
  // What the tier list says is what the tier is throttled to: it cannot be faster than that.
  const auto put = [](double& rate, std::uint64_t throttle) {
    const auto limit = static_cast<double>(throttle);
    if (throttle != 0 && (rate == 0 || rate > limit)) rate = limit;
  };
  put(model.read_bytes_per_s, spec.throttle.read_bytes_per_s);
  put(model.write_bytes_per_s, spec.throttle.write_bytes_per_s);
  model.read_latency_ns = std::max(model.read_latency_ns, spec.throttle.latency_ns);
  model.write_latency_ns = std::max(model.write_latency_ns, spec.throttle.latency_ns);
  if (visibility_of(spec.kind) == Visibility::kRank && !fitted) {
    for (double* rate : {&model.read_bytes_per_s, &model.write_bytes_per_s}) {
      if (*rate == 0) *rate = kMemoryRate / rate_scale;
    }
  }
  if (model.read_bytes_per_s == 0 || model.write_bytes_per_s == 0) {
    return failure(Code::kInvalidArgument,
                   fmt::format("virtual time does not know how fast tier {} is: write "
                               "read=..,write=.. behind it, or give --fit",
                               spec.name));
  }
  return model;
}

}  // namespace

void add_serving_settings(SettingsTable& table, ServingConfig& config) {
  using enum ValueKind;
  table.add({.name = "engine",
             .kind = kChoice,
             .help = "plain: a batch at a time, whole; vllm: the scheduler of vLLM V1",
             .target = choice_target(&config.form, kFormNames)});
  table.add({.name = "virtual-time",
             .kind = kSwitch,
             .help = "no bytes, no waiting: tiers are modelled (engine vllm)",
             .target = &config.virtual_time});
  table.add({.name = "model",
             .kind = kText,
             .help = "of engine vllm: " + model_profile_names() + ", or custom:...",
             .target = &config.model});
  table.add({.name = "device",
             .kind = kText,
             .help = "that computes: " + device_profile_names() + ", or custom:...",
             .target = &config.device});
  table.add({.name = "devices",
             .kind = kCount,
             .help = "of an engine, tensor-parallel",
             .target = &config.devices,
             .min = 1,
             .max = 1024});
  table.add({.name = "device-kv",
             .kind = kSize,
             .help = "KV space of an engine's devices, represented; 0 = what fits",
             .unit = "B",
             .target = &config.device_kv_bytes});
  table.add({.name = "device-prefix-cache",
             .kind = kSwitch,
             .help = "the engine finds prefixes in its own KV space",
             .target = &config.device_prefix_cache});
  table.add({.name = "token-budget",
             .kind = kCount,
             .help = "tokens that a step computes at most",
             .unit = "tokens",
             .target = &config.token_budget,
             .min = 1,
             .max = 1e7});
  table.add({.name = "sequences",
             .kind = kCount,
             .help = "requests that run at a time, at most",
             .target = &config.sequences,
             .min = 1,
             .max = 1e6});
  table.add({.name = "chunked-prefill",
             .kind = kSwitch,
             .help = "a prompt may be computed over several steps",
             .target = &config.chunked_prefill});
  table.add({.name = "loads",
             .kind = kChoice,
             .help = "sync: a step's loads end before its forward pass; async: a request joins "
                     "when its blocks are there",
             .target = choice_target(&config.loads, kLoadsNames)});
  table.add({.name = "step-overhead",
             .kind = kDuration,
             .help = "of each forward pass, represented",
             .unit = "s",
             .target = &config.step_overhead_ns});
  table.add({.name = "shards",
             .kind = kCount,
             .help =
                 "tensor-parallel parts of each block, each with an engine and its part of pool "
                 "and caps (engine vllm)",
             .target = &config.shards,
             .min = 1,
             .max = 64});
  table.add({.name = "virtual-ranks",
             .kind = kCount,
             .help = "data-parallel engines in virtual time",
             .target = &config.ranks,
             .min = 1,
             .max = 4096});
  table.add({.name = "virtual-nodes",
             .kind = kCount,
             .help = "nodes that they are on, dealt evenly",
             .target = &config.nodes,
             .min = 1,
             .max = 4096});
  table.add({.name = "fit",
             .kind = kText,
             .help = "what `kvstream bench fit` measured: tiers of virtual time",
             .target = &config.fit});
  table.add({.name = "load",
             .kind = kNumber,
             .help = "arrivals at this part of the first side's saturated throughput, which is "
                     "found first (virtual time; arrivals poisson or gamma)",
             .target = &config.load,
             .min = 0,
             .max = 100});
}

Result<ServingModel> serving_model_of(const ServingConfig& config) {
  ServingModel result;
  auto model = model_profile(config.model);
  if (!model) return failure(model.error());
  auto device = device_profile(config.device);
  if (!device) return failure(device.error());
  result.model = std::move(*model);
  result.devices.device = std::move(*device);
  result.devices.count = config.devices;
  if (config.device_kv_bytes != 0) {
    result.kv_tokens = static_cast<std::uint64_t>(static_cast<double>(config.device_kv_bytes) /
                                                  result.model.kv_bytes_per_token);
  } else {
    auto fits = device_kv_tokens(result.model, result.devices);
    if (!fits) return failure(fits.error());
    result.kv_tokens = *fits;
  }
  result.about.push_back(fmt::format(
      "engine     modelled: {} on {} x {}, KV space {} tokens ({}), {} loads, {} tokens a step",
      result.model.name, config.devices, result.devices.device.name, result.kv_tokens,
      format_size(static_cast<std::uint64_t>(static_cast<double>(result.kv_tokens) *
                                             result.model.kv_bytes_per_token)),
      kLoadsNames[static_cast<std::size_t>(config.loads)], config.token_budget));
  if (config.shards > 1) {
    result.about.push_back(fmt::format(
        "shards     {} a rank: an engine each, with 1/{} of every block, of the pool and of caps",
        config.shards, config.shards));
  }
  return result;
}

BlockShape shard_shape(BlockShape shape, std::uint32_t shards) {
  shape.kv_bytes_per_token /= shards;
  return shape;
}

Settings shard_settings(Settings settings, std::uint32_t shards) {
  settings.pool_bytes /= shards;
  settings.write_queue_bytes_max /= shards;
  return settings;
}

ServingOptions serving_options_of(const ServingConfig& config, const ServingModel& model,
                                  const BlockShape& shape, double time_scale) {
  ServingOptions options;
  options.shape = shard_shape(shape, config.shards);
  options.scheduler.token_budget = config.token_budget;
  options.scheduler.sequences_max = config.sequences;
  options.scheduler.chunked_prefill = config.chunked_prefill;
  options.scheduler.load_mode = config.loads;
  options.scheduler.kv.capacity_tokens = model.kv_tokens;
  options.scheduler.kv.block_tokens = shape.block_tokens;
  options.scheduler.kv.prefix_cache =
      config.device_prefix_cache ? PrefixCache::kOn : PrefixCache::kOff;
  options.forward = ProfiledForward{model.model, model.devices,
                                    static_cast<double>(config.step_overhead_ns) * 1e-9};
  options.time_scale = time_scale;
  options.block_bytes_max = (options.shape.block_bytes_max() + 4095U) & ~4095U;
  return options;
}

Result<VirtualOptions> virtual_options_of(const ServingConfig& config, const ServingModel& model,
                                          const EngineConfig& engine, double time_scale,
                                          double bytes_scale) {
  VirtualOptions options;
  options.settings = shard_settings(engine.settings, config.shards);
  options.shards = config.shards;
  Fit fit;
  const bool fitted = !config.fit.empty();
  const double rate_scale = time_scale / bytes_scale;  // represented / here
  if (fitted) {
    auto read = read_fit(config.fit);
    if (!read) return failure(read.error());
    fit = std::move(*read);
    options.copies = fit.copies;
  } else {
    options.copies = {std::max(kCopyThreadsMin, engine.settings.copy_threads),
                      kCopyRate / rate_scale,
                      model.devices.host_link_bytes_per_s() / config.shards / rate_scale};
  }
  for (const TierSpec& spec : engine.tiers) {
    auto device = model_of(spec, fit, fitted, rate_scale);
    if (!device) return failure(device.error());
    options.tiers.push_back({spec, visibility_of(spec.kind), *device});
  }
  const std::uint32_t nodes = std::min(config.nodes, config.ranks);
  for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
    options.node_of_rank.push_back(
        static_cast<std::uint32_t>(std::uint64_t{rank} * nodes / config.ranks));
  }
  return options;
}

Status take_nominal_rates(const ServingConfig& config, std::vector<TierSpec>& tiers) {
  if (config.fit.empty()) return Status::ok();
  const auto fit = read_fit(config.fit);
  if (!fit) return fit.error();
  for (TierSpec& spec : tiers) {
    const auto found = fit->tiers.find(spec.name);
    if (found == fit->tiers.end() || spec.nominal_read_bytes_per_s != 0 ||
        spec.throttle.read_bytes_per_s != 0) {
      continue;
    }
    spec.nominal_read_bytes_per_s = static_cast<std::uint64_t>(found->second.read_bytes_per_s);
  }
  return Status::ok();
}

std::uint64_t virtual_pool_bytes(const EngineConfig& engine, std::uint64_t step_blocks) {
  return std::max(kPoolBlocksMin, kPoolSteps * step_blocks) * engine.settings.block_bytes_max;
}

}  // namespace kvstream
