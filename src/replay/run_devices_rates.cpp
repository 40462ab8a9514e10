// How fast the devices of a run are: what of RunDevices reads them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "replay/agreement.hpp"
#include "replay/run_devices.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kScratchBytes = 192U << 20U;
constexpr std::uint32_t kScratchExtentBytes = 1U << 20U;
constexpr std::uint64_t kCopyBytes = 64U << 20U;
constexpr Nanos kGather_ns = 300 * kSecond;
constexpr std::size_t kAll = SIZE_MAX;
/// A limiter is smooth: half a second of it is 100 times its burst.
constexpr Nanos kThrottleMeasure_ns = kSecond / 2;

/// Removes the scratch file at the end of the measurement.
struct ScratchFile {
  std::string path;
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

nlohmann::json packed(const std::vector<DeviceRate>& rates) {
  nlohmann::json text = nlohmann::json::array();
  for (const auto& rate : rates) {
    text.push_back({rate.device_id, rate.bytes_per_s, rate.asked_bytes,
                    rate.counted_bytes ? nlohmann::json(*rate.counted_bytes) : nlohmann::json(),
                    rate.mode, rate.why_not});
  }
  return text;
}

/// What all ranks have measured, on all of them.
Status share(Group& group, const Result<std::vector<DeviceRate>>& mine,
             std::vector<DeviceRate>& all) {
  Status status = agree(group, mine ? Status::ok() : mine.error(), kGather_ns);
  if (!status.is_ok()) return status;
  using Json = nlohmann::json;
  auto gathered = group.all_gather(
      packed(*mine).dump(-1, ' ', false, Json::error_handler_t::replace), kGather_ns);
  if (!gathered) return gathered.error();
  for (const auto& bytes : gathered->bytes) {
    const auto theirs = Json::parse(bytes, nullptr, false);
    if (!theirs.is_array()) continue;
    for (const auto& one : theirs) {
      DeviceRate rate{one[0], one[1], one[2], {}, one[4], one[5]};
      if (one[3].is_number()) rate.counted_bytes = one[3].get<std::uint64_t>();
      all.push_back(std::move(rate));
    }
  }
  return Status::ok();
}

}  // namespace

void RunDevices::open_probes() {
  probes_.clear();
  probes_.resize(known_.size());
  if (!open_probe_) return;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    if (known_[i].configured_rate <= 0 || known_[i].owner != rank_) continue;
    probes_[i] = open_probe_(known_[i].tier);
  }
}

/// All at the same time. What could not be read says why in its place.
std::vector<DeviceRate> RunDevices::read_probes(const CalibrationOptions& options,
                                                std::size_t only) {
  CalibrationOptions shorter = options;
  shorter.measure_ns = std::min(options.measure_ns, kThrottleMeasure_ns);
  std::vector<DeviceRate> rates(probes_.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (!probes_[i] || (only != kAll && only != i)) continue;
    rates[i].device_id = known_[i].id;
    threads.emplace_back([this, &rates, &shorter, i] {
      auto& probe = *probes_[i];
      auto rate = probe ? measure_tier_rate(*probe->tier, probe->slots, probe->in_flight, shorter)
                        : failure(probe.error());
      if (rate) {
        rate->device_id = known_[i].id;
        rates[i] = std::move(*rate);
      } else {
        rates[i].why_not = rate.error().message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::erase_if(rates, [](const DeviceRate& rate) { return rate.device_id.empty(); });
  return rates;
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
    // Named by process: what a killed run left is in nobody's way.
    files.push_back({fmt::format("{}/.calibration-{}-{}-{}", device.path, rank_, i, ::getpid())});
    auto target = scratch_target(device.id, files.back().path, kScratchBytes, kScratchExtentBytes);
    if (!target) return failure(target.error());
    targets.push_back(std::move(*target));
  }
  std::vector<DeviceRate> throttled;
  std::thread probing([&] { throttled = read_probes(options, only); });
  auto measured = targets.empty() ? Result<std::vector<DeviceRate>>(std::vector<DeviceRate>())
                                  : measure_rates(targets, options);
  probing.join();
  if (!measured) return failure(measured.error());
  if (options.stopped()) return failure(calibration_stopped());
  rates.insert(rates.end(), measured->begin(), measured->end());
  rates.insert(rates.end(), throttled.begin(), throttled.end());
  return rates;
}

/// One look more at a rate that is off: what disturbed the machine for a moment is no finding.
Status RunDevices::measure_throttled(Group& group, const CalibrationOptions& options) {
  throttled_.clear();
  for (std::size_t i = 0; i < known_.size(); ++i) {
    if (known_[i].configured_rate <= 0 || !open_probe_) continue;
    const auto configured = static_cast<std::uint64_t>(known_[i].configured_rate);
    auto mine = measure_mine(options, i);
    if (mine && !mine->empty() && mine->front().why_not.empty() &&
        !check_throttled_rate(mine->front(), configured).is_ok()) {
      mine = measure_mine(options, i);
    }
    if (Status status = share(group, mine, throttled_); !status.is_ok()) return status;
  }
  return Status::ok();
}

Status RunDevices::measure_into(Group& group, Calibrate calibrate,
                                const CalibrationOptions& options, Calibration& into) {
  std::size_t unthrottled = 0, all = 0;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    all += known_[i].memory ? 0 : 1;
    if (known_[i].configured_rate > 0) continue;
    if (calibrate == Calibrate::kOff && !known_[i].memory) continue;
    unthrottled += known_[i].memory ? 0 : 1;
    Status status = share(group, measure_mine(options, i), into.alone);
    if (!status.is_ok()) return status;
  }
  if (calibrate == Calibrate::kOff) return Status::ok();
  const bool first = !measured_before_;
  if (first) {
    if (Status status = measure_throttled(group, options); !status.is_ok()) return status;
  }
  // What only limiters bound gives the same after the run.
  if (all < 2 || (!first && unthrottled == 0)) return Status::ok();
  return share(group, measure_mine(options, kAll), into.joint);
}

Status RunDevices::measure(Group& group, Calibrate calibrate, const CalibrationOptions& options) {
  if (calibrate == Calibrate::kOff && measured_before_) return Status::ok();
  Calibration& into = measured_before_ ? after_ : before_;
  into = {};
  if (calibrate == Calibrate::kOn) open_probes();
  Status status = measure_into(group, calibrate, options, into);
  probes_.clear();
  measured_before_ = true;
  return status;
}

}  // namespace kvstream
