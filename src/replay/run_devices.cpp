#include "replay/run_devices.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "replay/kernel_throttle.hpp"

namespace kvstream {
namespace {

constexpr Nanos kGather_ns = 300 * kSecond;
const std::string kMemoryPrefix = "memory@";

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

}  // namespace

Result<RunDevices> RunDevices::open(Group& group, const std::vector<ReplayTier>& tiers,
                                    std::uint32_t copy_threads, OpenProbe open_probe) {
  RunDevices devices;
  devices.open_probe_ = std::move(open_probe);
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
      devices.known_.push_back({id, "", 0, rank, id.starts_with(kMemoryPrefix),
                                one.value("rate", 0.0), one.value("credit", 0.0),
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
    Known& device = devices.known_[devices.device_of_tier_.back()];
    device.path = tiers[i].spec.path;
    device.tier = i;
  }
  devices.memory_device_ = index_of(memory);
  devices.copies_at_once_ = std::max(
      1U, std::min(std::thread::hardware_concurrency(), copy_threads * std::max(1U, ranks_here)));
  return devices;
}

std::vector<DeviceSpeed> RunDevices::speeds() const {
  const auto combined = combine(before_, after_);
  std::vector<DeviceSpeed> speeds;
  for (const auto& device : known_) {
    DeviceSpeed speed{device.id, device.configured_rate, joint_rate_of(device),
                      device.credit_bytes};
    for (const auto& one : combined) {
      if (one.device_id != device.id) continue;
      speed.rate_bytes_per_s = one.rate_bytes_per_s;
      if (device.kernel_throttled) {
        speed.credit_bytes = one.rate_bytes_per_s * static_cast<double>(kKernelSliceNs) * 1e-9;
      }
    }
    // Memory is read by the copies of every other read: it has no joint figure of its own.
    if (device.memory) speed.joint_rate_bytes_per_s = speed.rate_bytes_per_s;
    if (device.configured_rate > 0) {
      speed.joint_rate_bytes_per_s = std::min(speed.joint_rate_bytes_per_s, device.configured_rate);
    }
    speeds.push_back(speed);
  }
  return speeds;
}

double RunDevices::joint_rate_of(const Known& device) const {
  double rate = 0;
  for (const Calibration* calibration : {&before_, &after_}) {
    for (const DeviceRate& joint : calibration->joint) {
      if (joint.device_id == device.id) rate = std::max(rate, joint.bytes_per_s);
    }
  }
  return rate;
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
    return device.drifted && !device.device_id.starts_with(kMemoryPrefix);
  });
}

const DeviceRate* RunDevices::check_of(const Known& device) const {
  const auto at = std::find_if(throttled_.begin(), throttled_.end(),
                               [&](const DeviceRate& rate) { return rate.device_id == device.id; });
  return at == throttled_.end() ? nullptr : &*at;
}

std::vector<std::string> RunDevices::marks() const {
  auto drives = combine(before_, after_);
  std::erase_if(drives, [](const CalibratedDevice& device) {
    return device.device_id.starts_with(kMemoryPrefix);
  });
  std::vector<std::string> marks = marks_of(drives);
  for (const auto& device : known_) {
    const DeviceRate* check = check_of(device);
    if (check == nullptr) continue;
    if (!check->why_not.empty()) {
      marks.push_back(fmt::format("device {}: its throttled rate could not be checked: {}",
                                  device.id, check->why_not));
      continue;
    }
    const Status status =
        check_throttled_rate(*check, static_cast<std::uint64_t>(device.configured_rate));
    if (!status.is_ok()) marks.push_back(status.message());
  }
  return marks;
}

nlohmann::json RunDevices::throttled_json(const Known& device, double rate_scale) const {
  nlohmann::json json = {{"device", device.id},
                         {"throttled", true},
                         {"rate_bytes_per_s", device.configured_rate},
                         {"represented_bytes_per_s", device.configured_rate * rate_scale},
                         {"measured_bytes_per_s", nullptr},
                         {"joint_bytes_per_s", nullptr},
                         {"agrees", nullptr}};
  if (const double joint = joint_rate_of(device); joint > 0) json["joint_bytes_per_s"] = joint;
  const DeviceRate* check = check_of(device);
  if (check == nullptr || !check->why_not.empty()) return json;
  json["measured_bytes_per_s"] = check->bytes_per_s;
  json["agrees"] =
      check_throttled_rate(*check, static_cast<std::uint64_t>(device.configured_rate)).is_ok();
  return json;
}

nlohmann::json RunDevices::to_json(double rate_scale) const {
  nlohmann::json devices = nlohmann::json::array();
  for (const auto& device : known_) {
    if (device.configured_rate > 0) devices.push_back(throttled_json(device, rate_scale));
  }
  return {
      {"throttled", devices},
      {"measured",
       kvstream::to_json(std::span<const CalibratedDevice>(combine(before_, after_)), rate_scale)}};
}

}  // namespace kvstream
