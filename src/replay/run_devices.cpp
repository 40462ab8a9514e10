#include "replay/run_devices.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "replay/agreement.hpp"
#include "replay/kernel_throttle.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kScratchBytes = 192U << 20U;
constexpr std::uint32_t kScratchExtentBytes = 1U << 20U;
constexpr std::uint64_t kCopyBytes = 64U << 20U;
constexpr Nanos kGather_ns = 300 * kSecond;
constexpr std::size_t kAll = SIZE_MAX;
const std::string kMemoryPrefix = "memory@";

bool is_memory(const std::string& id) { return id.starts_with(kMemoryPrefix); }

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// The drive or mount below a path, as far as this host can tell it from others.
std::string mount_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "unknown";
  return std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
}

std::string device_id_of(const ReplayTier& tier, const Group& group) {
  if (tier.spec.throttle.read_bytes_per_s != 0) {
    switch (tier.visibility) {
      case Visibility::kRank:
        return tier.spec.name + ":rank" + std::to_string(group.rank());
      case Visibility::kNode:
        return tier.spec.name + "@" + group.node();
      case Visibility::kJob:
        return tier.spec.name;
    }
  }
  if (tier.spec.path.empty()) return kMemoryPrefix + host_name();
  return "disk " + mount_of(tier.spec.path) + "@" + host_name();
}

bool kernel_throttled(const ReplayTier& tier) {
  return !tier.spec.throttle.any() && !tier.spec.path.empty() &&
         kernel_read_limit(tier.spec.path).has_value();
}

/// Removes the scratch file at the end of the measurement.
struct ScratchFile {
  std::string path;
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

}  // namespace

Result<RunDevices> RunDevices::open(Group& group, const std::vector<ReplayTier>& tiers,
                                    std::uint32_t copy_threads) {
  RunDevices devices;
  devices.rank_ = group.rank();
  const std::string memory = kMemoryPrefix + host_name();
  nlohmann::json mine = nlohmann::json::array();
  std::vector<std::string> ids;
  for (const auto& tier : tiers) {
    ids.push_back(device_id_of(tier, group));
    mine.push_back({{"id", ids.back()},
                    {"rate", tier.spec.throttle.read_bytes_per_s},
                    {"credit", tier.burst_bytes},
                    {"slices", kernel_throttled(tier)}});
  }
  mine.push_back({{"id", memory}, {"rate", 0}, {"credit", 0}, {"slices", false}});
  auto gathered = group.all_gather(mine.dump(), kGather_ns);
  if (!gathered) return failure(gathered.error());
  std::uint32_t ranks_here = 0;
  for (std::uint32_t rank = 0; rank < gathered->bytes.size(); ++rank) {
    const auto theirs = nlohmann::json::parse(gathered->bytes[rank], nullptr, false);
    if (!theirs.is_array()) return failure(Code::kUnavailable, "a rank named no devices");
    for (const auto& one : theirs) {
      const std::string id = one.value("id", "");
      if (id == memory && &one == &theirs.back()) ++ranks_here;
      const auto same = [&](const Known& device) { return device.id == id; };
      if (std::any_of(devices.known_.begin(), devices.known_.end(), same)) continue;
      devices.known_.push_back({id, "", rank, one.value("rate", 0.0), one.value("credit", 0.0),
                                one.value("slices", false)});
    }
  }
  const auto index_of = [&](const std::string& id) {
    const auto at = std::find_if(devices.known_.begin(), devices.known_.end(),
                                 [&](const Known& device) { return device.id == id; });
    return static_cast<std::uint32_t>(at - devices.known_.begin());
  };
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    devices.device_of_tier_.push_back(index_of(ids[i]));
    devices.known_[devices.device_of_tier_.back()].path = tiers[i].spec.path;
  }
  devices.memory_device_ = index_of(memory);
  devices.copies_at_once_ = std::max(
      1U, std::min(std::thread::hardware_concurrency(), copy_threads * std::max(1U, ranks_here)));
  return devices;
}

Result<std::vector<DeviceRate>> RunDevices::measure_mine(const CalibrationOptions& options,
                                                         std::size_t only) {
  std::vector<CalibrationTarget> targets;
  std::vector<ScratchFile> files;
  files.reserve(known_.size());
  std::vector<DeviceRate> rates;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const Known& device = known_[i];
    if (device.owner != rank_ || device.configured_rate > 0 || (only != kAll && only != i))
      continue;
    if (device.path.empty()) {
      // Copies are made by several threads; the bound must not be below what they reach together.
      if (only == kAll) continue;
      DeviceRate rate;
      rate.device_id = device.id;
      rate.bytes_per_s = measure_copy_rate(kCopyBytes, options.measure_ns / 4) * copies_at_once_;
      rate.mode = "memcpy";
      rates.push_back(rate);
      continue;
    }
    files.push_back(
        {device.path + "/.calibration-" + std::to_string(rank_) + "-" + std::to_string(i)});
    auto target = scratch_target(device.id, files.back().path, kScratchBytes, kScratchExtentBytes);
    if (!target) return failure(target.error());
    targets.push_back(std::move(*target));
  }
  if (targets.empty()) return rates;
  auto measured = measure_rates(targets, options);
  if (!measured) return failure(measured.error());
  rates.insert(rates.end(), measured->begin(), measured->end());
  return rates;
}

Status RunDevices::measure_into(Group& group, Calibrate calibrate,
                                const CalibrationOptions& options, Calibration& into) {
  const auto share = [&](Result<std::vector<DeviceRate>> mine, std::vector<DeviceRate>& all) {
    Status status = agree(group, mine ? Status::ok() : mine.error(), kGather_ns);
    if (!status.is_ok()) return status;
    nlohmann::json text = nlohmann::json::array();
    for (const auto& rate : *mine) {
      text.push_back({rate.device_id, rate.bytes_per_s, rate.asked_bytes,
                      rate.counted_bytes ? nlohmann::json(*rate.counted_bytes) : nlohmann::json(),
                      rate.mode});
    }
    auto gathered = group.all_gather(text.dump(), kGather_ns);
    if (!gathered) return gathered.error();
    for (const auto& bytes : gathered->bytes) {
      const auto theirs = nlohmann::json::parse(bytes, nullptr, false);
      if (!theirs.is_array()) continue;
      for (const auto& one : theirs) {
        DeviceRate rate{one[0], one[1], one[2], {}, one[4]};
        if (one[3].is_number()) rate.counted_bytes = one[3].get<std::uint64_t>();
        all.push_back(std::move(rate));
      }
    }
    return Status::ok();
  };
  std::size_t unthrottled = 0;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    if (known_[i].configured_rate > 0) continue;
    if (calibrate == Calibrate::kOff && !is_memory(known_[i].id)) continue;
    ++unthrottled;
    if (Status status = share(measure_mine(options, i), into.alone); !status.is_ok()) return status;
  }
  // Memory is read by the copies of every other read: there is no joint figure of its own.
  return unthrottled > 2 && calibrate == Calibrate::kOn
             ? share(measure_mine(options, kAll), into.joint)
             : Status::ok();
}

Status RunDevices::measure(Group& group, Calibrate calibrate, const CalibrationOptions& options) {
  if (calibrate == Calibrate::kOff && measured_before_) return Status::ok();
  Calibration& into = measured_before_ ? after_ : before_;
  into = {};
  Status status = measure_into(group, calibrate, options, into);
  measured_before_ = true;
  return status;
}

std::vector<DeviceSpeed> RunDevices::speeds() const {
  const auto combined = combine(before_, after_);
  std::vector<DeviceSpeed> speeds;
  for (const auto& device : known_) {
    DeviceSpeed speed{device.id, device.configured_rate, 0, device.credit_bytes};
    for (const auto& one : combined) {
      if (one.device_id != device.id) continue;
      speed.rate_bytes_per_s = one.rate_bytes_per_s;
      speed.joint_rate_bytes_per_s = one.joint_rate_bytes_per_s;
      if (device.kernel_throttled) {
        speed.credit_bytes = one.rate_bytes_per_s * static_cast<double>(kKernelSliceNs) * 1e-9;
      }
    }
    speeds.push_back(speed);
  }
  return speeds;
}

bool RunDevices::all_known() const {
  const auto all = speeds();
  return std::all_of(all.begin(), all.end(),
                     [](const DeviceSpeed& speed) { return speed.rate_bytes_per_s > 0; });
}

/// Of drives and mounts: a copy's rate depends on who else uses the cores just then.
bool RunDevices::drifted() const {
  const auto combined = combine(before_, after_);
  return std::any_of(combined.begin(), combined.end(), [](const CalibratedDevice& device) {
    return device.drifted && !is_memory(device.device_id);
  });
}

nlohmann::json RunDevices::to_json(double rate_scale) const {
  nlohmann::json devices = nlohmann::json::array();
  for (const auto& device : known_) {
    if (device.configured_rate <= 0) continue;
    devices.push_back({{"device", device.id},
                       {"throttled", true},
                       {"rate_bytes_per_s", device.configured_rate},
                       {"represented_bytes_per_s", device.configured_rate * rate_scale}});
  }
  return {
      {"throttled", devices},
      {"measured",
       kvstream::to_json(std::span<const CalibratedDevice>(combine(before_, after_)), rate_scale)}};
}

}  // namespace kvstream
