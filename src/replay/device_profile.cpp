#include "replay/device_profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <vector>

#include "replay/device_kv.hpp"
#include "replay/profile_fields.hpp"

namespace kvstream {
namespace {

// Peak (dense bf16), memory bandwidth and link from NVIDIA's data sheets (A100 and H100 SXM, H200
// SXM, L40S; PCIe 4.0 x16 32 GB/s and 5.0 x16 64 GB/s one way); memory as nvidia-smi reports it.
// The utilisations are assumptions (docs/engine-model.md).
constexpr double kMib = 1024.0 * 1024.0;
constexpr double kUtilisation = 0.5;
constexpr double kBandwidthUtilisation = 0.8;

struct Known {
  std::string_view name;
  double peak_flops, memory_bandwidth_bytes_per_s, memory_bytes, host_link_bytes_per_s;
};

constexpr std::array<Known, 4> kDevices = {{
    {"a100-80g", 312e12, 2039e9, 81'920 * kMib, 32e9},
    {"h100-80g", 989.4e12, 3350e9, 81'559 * kMib, 64e9},
    {"h200-141g", 989.4e12, 4800e9, 143'771 * kMib, 64e9},
    {"l40s", 362.05e12, 864e9, 46'068 * kMib, 32e9},
}};

constexpr std::array<std::string_view, 4> kRequired = {"flops", "mem-bw", "mem", "link"};
constexpr std::array<std::string_view, 2> kOptional = {"util", "bw-util"};

Result<DeviceProfile> custom_device(std::string_view text) {
  const Result<ProfileFields> fields = parse_profile_fields("device", text, kRequired, kOptional);
  if (!fields) return failure(fields.error());
  const DeviceProfile device{
      .name = "custom",
      .peak_flops = fields->at("flops"),
      .utilisation = field_or(*fields, "util", kUtilisation),
      .memory_bandwidth_bytes_per_s = fields->at("mem-bw"),
      .bandwidth_utilisation = field_or(*fields, "bw-util", kBandwidthUtilisation),
      .memory_bytes = fields->at("mem"),
      .host_link_bytes_per_s = fields->at("link")};
  if (device.utilisation > 1 || device.bandwidth_utilisation > 1) {
    return failure(Code::kInvalidArgument,
                   "custom device profile: util and bw-util are shares; give at most 1");
  }
  return device;
}

double together(const DeviceGroup& group) {
  return group.count > 1 ? group.count * group.parallel_efficiency : 1;
}

double kv_bytes(const ModelProfile& model, const DeviceProfile& device, double count,
                const DeviceMemoryOptions& options) {
  return count * (device.memory_bytes * options.memory_utilisation - options.activation_bytes) -
         model.weight_bytes;
}

}  // namespace

double DeviceGroup::flops_per_s() const {
  return device.peak_flops * device.utilisation * together(*this);
}

double DeviceGroup::bytes_per_s() const {
  return device.memory_bandwidth_bytes_per_s * device.bandwidth_utilisation * together(*this);
}

Result<DeviceProfile> device_profile(std::string_view text) {
  constexpr std::string_view kCustom = "custom:";
  if (text.starts_with(kCustom)) return custom_device(text.substr(kCustom.size()));
  for (const Known& known : kDevices) {
    if (known.name != text) continue;
    return DeviceProfile{.name = std::string(known.name),
                         .peak_flops = known.peak_flops,
                         .utilisation = kUtilisation,
                         .memory_bandwidth_bytes_per_s = known.memory_bandwidth_bytes_per_s,
                         .bandwidth_utilisation = kBandwidthUtilisation,
                         .memory_bytes = known.memory_bytes,
                         .host_link_bytes_per_s = known.host_link_bytes_per_s};
  }
  return failure(Code::kInvalidArgument,
                 fmt::format("no device profile '{}'; there are {} and custom:flops=..,...", text,
                             device_profile_names()));
}

std::string device_profile_names() {
  std::vector<std::string_view> names;
  for (const Known& known : kDevices) names.push_back(known.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::uint64_t> device_kv_tokens(const ModelProfile& model, const DeviceGroup& devices,
                                       const DeviceMemoryOptions& options) {
  const double page_bytes = model.kv_bytes_per_token * DeviceKv::kPageTokens;
  const double space = kv_bytes(model, devices.device, devices.count, options);
  if (space >= page_bytes) {
    return static_cast<std::uint64_t>(space / page_bytes) * DeviceKv::kPageTokens;
  }
  const double each =
      devices.device.memory_bytes * options.memory_utilisation - options.activation_bytes;
  const std::string cure =
      each > 0 ? fmt::format("take at least {:.0f} devices, or one with more memory",
                             std::ceil((model.weight_bytes + page_bytes) / each))
               : "take a device with more memory";
  return failure(
      Code::kNoSpace,
      fmt::format("{} ({:.1f} GB of weights) leaves no room for KV on {} x {}; {}", model.name,
                  model.weight_bytes / 1e9, devices.count, devices.device.name, cure));
}

}  // namespace kvstream
