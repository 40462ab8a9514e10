// The settings of the serving engine's model and of virtual time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "launch/replay_settings.hpp"
#include "replay/serving_loop.hpp"
#include "replay/virtual_run.hpp"

namespace kvstream {

/// kPlain: a batch is admitted, loaded, computed and answered whole. kVllm: vLLM V1's scheduler.
enum class EngineForm : std::uint8_t { kPlain, kVllm };

/// Targets of the table's entries.
struct ServingConfig {
  EngineForm form = EngineForm::kPlain;
  bool virtual_time = false;
  std::string model = "llama-3-8b";
  std::string device = "h100-80g";
  std::uint32_t devices = 1;
  std::uint64_t device_kv_bytes = 0;  ///< represented; 0 = what fits beside the weights
  bool device_prefix_cache = true;
  std::uint32_t token_budget = 8192;
  std::uint32_t sequences = 256;
  bool chunked_prefill = true;
  LoadMode loads = LoadMode::kSync;
  Nanos step_overhead_ns = 0;  ///< represented
  std::uint32_t shards = 1;
  std::uint32_t ranks = 1, nodes = 1;  ///< of virtual time
  std::string fit;                     ///< file of `kvstream bench --fit`
  double load = 0;
};

void add_serving_settings(SettingsTable& table, ServingConfig& config);

/// The model and its devices, found and put together; what the report says of them.
struct ServingModel {
  ModelProfile model;
  DeviceGroup devices;
  std::uint64_t kv_tokens = 0;  ///< that the devices hold
  std::vector<std::string> about;
};
Result<ServingModel> serving_model_of(const ServingConfig& config);

/// `shape` is of a whole block; the options are of one shard's. Without clock and stop.
ServingOptions serving_options_of(const ServingConfig& config, const ServingModel& model,
                                  const BlockShape& shape, double time_scale);
/// A shard's part of each block.
BlockShape shard_shape(BlockShape shape, std::uint32_t shards);
/// A shard's part of what a rank may take: its pool, and of that the write queue.
Settings shard_settings(Settings settings, std::uint32_t shards);

/// Puts the fit file's read rates, if there is one, where a tier names none itself.
Status take_nominal_rates(const ServingConfig& config, std::vector<TierSpec>& tiers);

/// For a pool that nobody asked for, of an engine whose steps compute so many blocks: it takes no
/// memory in virtual time.
std::uint64_t virtual_pool_bytes(const EngineConfig& engine, std::uint64_t step_blocks);

/// Modelled tiers from what the tier list says (read=, write=, latency=) and, before it, the fit
/// file. kInvalidArgument for a tier of which neither tells a rate.
Result<VirtualOptions> virtual_options_of(const ServingConfig& config, const ServingModel& model,
                                          const EngineConfig& engine, double time_scale,
                                          double bytes_scale);

}  // namespace kvstream
