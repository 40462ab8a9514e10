// The accelerators of one engine: how fast they compute and read, and how much KV they hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvstream/status.hpp"
#include "replay/model_profile.hpp"

namespace kvstream {

/// One device (GPU). A plain value; sources and assumptions are in docs/engine-model.md.
struct DeviceProfile {
  std::string name;
  double peak_flops = 0;   ///< dense, 16-bit, per second
  double utilisation = 0;  ///< share of the peak that large batches reach
  double memory_bandwidth_bytes_per_s = 0;
  double bandwidth_utilisation = 0;
  double memory_bytes = 0;
  double host_link_bytes_per_s = 0;  ///< one direction, between host memory and this device
};

/// The devices that serve one engine (rank), tensor-parallel where there are several.
struct DeviceGroup {
  DeviceProfile device;
  std::uint32_t count = 1;
  /// What is left of `count` times one device's compute and bandwidth; counts where count > 1.
  double parallel_efficiency = 0.9;

  double flops_per_s() const;  ///< peak x utilisation x count x efficiency
  double bytes_per_s() const;  ///< memory, likewise
  double host_link_bytes_per_s() const { return device.host_link_bytes_per_s * count; }
};

/// By name (a100-80g, h100-80g, h200-141g, l40s), or in free form:
/// custom:flops=..,mem-bw=..,mem=..,link=..[,util=0.5][,bw-util=0.8]
/// flops and rates per second, sizes in bytes (1e9 forms are fine).
Result<DeviceProfile> device_profile(std::string_view text);

/// The names that device_profile() knows, separated by ", ".
std::string device_profile_names();

/// What of the devices' memory is not KV.
struct DeviceMemoryOptions {
  double memory_utilisation = 0.9;                     ///< vLLM's gpu_memory_utilization
  double activation_bytes = 2.0 * 1024 * 1024 * 1024;  ///< per device, kept for a forward pass
};

/// Tokens of KV that fit beside the weights: count x (memory x utilisation - activations) less
/// the weights. kNoSpace, with the least count that would do, where not even one page fits.
Result<std::uint64_t> device_kv_tokens(const ModelProfile& model, const DeviceGroup& devices,
                                       const DeviceMemoryOptions& options = {});

}  // namespace kvstream
