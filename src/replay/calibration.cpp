#include "replay/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "replay/device_counts.hpp"

namespace kvstream {
namespace {

constexpr Nanos kSampleEvery = 5 * kMillisecond;
constexpr std::size_t kAlignment = 4096;

struct FreeMemory {
  void operator()(std::byte* data) const { std::free(data); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeMemory>;

AlignedMemory aligned_memory(std::size_t size_bytes) {
  const std::size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  // Touched now: first touches would be timed otherwise.
  if (data != nullptr) std::memset(data, 0, rounded);
  return AlignedMemory(data);
}

double seconds(Nanos duration) { return static_cast<double>(duration) * 1e-9; }

Nanos now() { return SteadyClock::instance().now(); }

void sleep_ns(Nanos duration) { std::this_thread::sleep_for(std::chrono::nanoseconds(duration)); }

/// Saturates one target with threads of its own, from start() until finish().
class TargetReaders {
 public:
  explicit TargetReaders(const CalibrationTarget& target) : target_(target) {}
  ~TargetReaders() { stop_and_join(); }
  TargetReaders(const TargetReaders&) = delete;
  TargetReaders& operator=(const TargetReaders&) = delete;

  Status start(std::uint32_t threads) {
    if (target_.sizes_bytes.empty() || !target_.read) {
      return {Code::kInvalidArgument,
              fmt::format("nothing to read on device {} for its calibration", target_.device_id)};
    }
    const std::uint32_t largest =
        *std::max_element(target_.sizes_bytes.begin(), target_.sizes_bytes.end());
    for (std::uint32_t i = 0; i < threads; ++i) {
      buffers_.push_back(aligned_memory(std::size_t{largest} + kCalibrationSlackBytes));
      if (!buffers_.back()) {
        return {Code::kOverloaded, fmt::format("no memory for {} reads of {} B to calibrate {}",
                                               threads, largest, target_.device_id)};
      }
    }
    if (!target_.count_path.empty()) stat_file_ = device_stat_file(target_.count_path);
    if (stat_file_) counts_before_ = read_device_counts(*stat_file_);
    for (const AlignedMemory& buffer : buffers_) {
      threads_.emplace_back([this, into = buffer.get()] { read_all(into); });
    }
    return Status::ok();
  }

  void sample(Nanos at) { samples_.push_back({seconds(at), static_cast<double>(bytes_.load())}); }
  bool failed() const { return stop_.load(); }

  Result<DeviceRate> finish() {
    stop_and_join();
    if (!error_.is_ok()) return failure(error_);
    DeviceRate rate;
    rate.device_id = target_.device_id;
    rate.mode = target_.mode;
    rate.asked_bytes = bytes_.load();
    rate.bytes_per_s = slope_bytes_per_s(samples_);
    if (stat_file_ && counts_before_) {
      if (const auto after = read_device_counts(*stat_file_)) {
        rate.counted_bytes = after->read_bytes - counts_before_->read_bytes;
      }
    }
    if (!(rate.bytes_per_s > 0)) {
      return failure(Code::kTimedOut, fmt::format("device {} gave {} B while it was calibrated; "
                                                  "measure for longer",
                                                  rate.device_id, rate.asked_bytes));
    }
    return rate;
  }

 private:
  void read_all(std::byte* into) {
    while (!stop_.load(std::memory_order_relaxed)) {
      const std::size_t index = next_.fetch_add(1) % target_.sizes_bytes.size();
      Result<std::uint64_t> moved = target_.read(index, into);
      if (!moved) {
        const std::lock_guard lock(error_mutex_);
        if (error_.is_ok()) error_ = moved.error();
        stop_.store(true);
        return;
      }
      bytes_.fetch_add(*moved);
    }
  }

  void stop_and_join() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const CalibrationTarget& target_;
  std::vector<AlignedMemory> buffers_;
  std::vector<std::thread> threads_;
  std::vector<RateSample> samples_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  Status error_;
  std::optional<std::string> stat_file_;
  std::optional<DeviceCounts> counts_before_;
};

nlohmann::json rate_json(const DeviceRate& rate) {
  return {{"device", rate.device_id},
          {"bytes_per_s", rate.bytes_per_s},
          {"asked_bytes", rate.asked_bytes},
          {"device_counted_bytes", rate.counted_bytes ? nlohmann::json(*rate.counted_bytes)
                                                      : nlohmann::json("unavailable")},
          {"count_agrees", rate.count_agrees()},
          {"mode", rate.mode}};
}

const DeviceRate* find(const std::vector<DeviceRate>& rates, const std::string& device_id) {
  const auto at = std::find_if(rates.begin(), rates.end(),
                               [&](const DeviceRate& rate) { return rate.device_id == device_id; });
  return at == rates.end() ? nullptr : &*at;
}

}  // namespace

double DeviceRate::count_off() const {
  if (!counted_bytes || asked_bytes == 0) return 0;
  const auto asked = static_cast<double>(asked_bytes);
  return std::abs(static_cast<double>(*counted_bytes) - asked) / asked;
}

bool DeviceRate::count_agrees() const { return count_off() <= kCountToleranceMax; }

double slope_bytes_per_s(std::span<const RateSample> samples) {
  if (samples.size() < 2) return 0;
  const auto count = static_cast<double>(samples.size());
  double mean_at = 0, mean_bytes = 0;
  for (const RateSample& sample : samples) {
    mean_at += sample.at_s / count;
    mean_bytes += sample.bytes / count;
  }
  double covariance = 0, variance = 0;
  for (const RateSample& sample : samples) {
    covariance += (sample.at_s - mean_at) * (sample.bytes - mean_bytes);
    variance += (sample.at_s - mean_at) * (sample.at_s - mean_at);
  }
  return variance > 0 ? covariance / variance : 0;
}

Result<std::vector<DeviceRate>> measure_rates(std::span<const CalibrationTarget> targets,
                                              const CalibrationOptions& options) {
  std::vector<std::unique_ptr<TargetReaders>> readers;
  for (const CalibrationTarget& target : targets) {
    readers.push_back(std::make_unique<TargetReaders>(target));
    if (Status status = readers.back()->start(std::max(options.threads, 1U)); !status.is_ok()) {
      return failure(std::move(status));
    }
  }
  const auto any_failed = [&] {
    return std::any_of(readers.begin(), readers.end(), [](const auto& r) { return r->failed(); });
  };
  const Nanos from = now() + options.discard_ns;
  const Nanos until = from + options.measure_ns;
  // Two samples at least, however late a busy machine lets this thread run.
  std::size_t samples = 0;
  for (Nanos at = now(); (at < until || samples < 2) && !any_failed(); at = now()) {
    if (options.stopped()) return failure(calibration_stopped());
    if (at < from) {
      sleep_ns(std::min(kSampleEvery, from - at));
      continue;
    }
    for (const auto& reader : readers) reader->sample(at);
    ++samples;
    sleep_ns(kSampleEvery);
  }
  std::vector<DeviceRate> rates;
  for (const auto& reader : readers) {
    Result<DeviceRate> rate = reader->finish();
    if (!rate) return failure(rate.error());
    rates.push_back(std::move(*rate));
  }
  return rates;
}

double measure_copy_rate(std::uint64_t size_bytes, Nanos measure_ns) {
  const AlignedMemory from = aligned_memory(size_bytes), to = aligned_memory(size_bytes);
  if (!from || !to || size_bytes == 0) return 0;
  const Nanos start = now();
  std::uint64_t copied = 0;
  do {
    std::memcpy(to.get(), from.get(), size_bytes);
    // Keeps the copy: nobody reads it otherwise.
    asm volatile("" : : "r"(to.get()) : "memory");
    copied += size_bytes;
  } while (now() - start < measure_ns);
  return static_cast<double>(copied) / seconds(now() - start);
}

Status check_throttled_rate(const DeviceRate& measured, std::uint64_t configured_bytes_per_s) {
  const auto configured = static_cast<double>(configured_bytes_per_s);
  if (std::abs(measured.bytes_per_s - configured) <= kCountToleranceMax * configured) {
    return Status::ok();
  }
  return {
      Code::kUnavailable,
      fmt::format("device {} gives {:.1f} MB/s, {:.1f} % off its configured {:.1f} MB/s (2 % is "
                  "allowed); lower the rate to what is below it",
                  measured.device_id, measured.bytes_per_s * 1e-6,
                  100 * (measured.bytes_per_s / configured - 1), configured * 1e-6)};
}

std::vector<CalibratedDevice> combine(const Calibration& before, const Calibration& after) {
  std::vector<CalibratedDevice> devices;
  for (const DeviceRate& rate : before.alone) {
    CalibratedDevice device;
    device.device_id = rate.device_id;
    device.rate_bytes_per_s = rate.bytes_per_s;
    device.count_off = rate.count_off();
    device.mode = rate.mode;
    if (const DeviceRate* later = find(after.alone, rate.device_id)) {
      device.rate_bytes_per_s = std::max(rate.bytes_per_s, later->bytes_per_s);
      device.drift = std::abs(later->bytes_per_s - rate.bytes_per_s) / device.rate_bytes_per_s;
      device.drifted = device.drift > kDriftMax;
      device.count_off = std::max(device.count_off, later->count_off());
    }
    device.count_agrees = device.count_off <= kCountToleranceMax;
    for (const Calibration* calibration : {&before, &after}) {
      if (const DeviceRate* joint = find(calibration->joint, rate.device_id)) {
        device.joint_rate_bytes_per_s = std::max(device.joint_rate_bytes_per_s, joint->bytes_per_s);
      }
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<std::string> marks_of(std::span<const CalibratedDevice> devices) {
  std::vector<std::string> marks;
  for (const CalibratedDevice& device : devices) {
    if (device.drifted) {
      marks.push_back(fmt::format(
          "device {}: its own speed moved by {:.1f} % between before and after (5 % is allowed)",
          device.device_id, 100 * device.drift));
    }
    if (!device.count_agrees) {
      marks.push_back(fmt::format(
          "device {}: its own count of bytes read is {:.1f} % off what was asked of it (2 % is "
          "allowed); somebody else reads it too, or its rate was not measured on it",
          device.device_id, 100 * device.count_off));
    }
  }
  return marks;
}

nlohmann::json to_json(const Calibration& calibration) {
  nlohmann::json json = {{"alone", nlohmann::json::array()}, {"joint", nlohmann::json::array()}};
  for (const DeviceRate& rate : calibration.alone) json["alone"].push_back(rate_json(rate));
  for (const DeviceRate& rate : calibration.joint) json["joint"].push_back(rate_json(rate));
  return json;
}

nlohmann::json to_json(std::span<const CalibratedDevice> devices, double rate_scale) {
  nlohmann::json json = nlohmann::json::object();
  for (const CalibratedDevice& device : devices) {
    json[device.device_id] = {{"here", device.rate_bytes_per_s},
                              {"represented", device.rate_bytes_per_s * rate_scale},
                              {"joint_here", device.joint_rate_bytes_per_s},
                              {"drift", device.drift},
                              {"drifted", device.drifted},
                              {"count_agrees", device.count_agrees},
                              {"count_off", device.count_off},
                              {"mode", device.mode}};
  }
  return json;
}

}  // namespace kvstream
