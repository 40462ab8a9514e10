// How fast the devices of a run really are, by raw reads that know nothing of our dispatcher.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"
#include "kvstream/tier.hpp"

namespace kvstream {

/// Bytes that were written (unwritten and sparse extents read at memory speed).
struct Extent {
  std::string path;
  std::uint64_t offset_bytes = 0;
  std::uint32_t size_bytes = 0;
};

/// Reads extent `index` into `into` (aligned to 4096, kCalibrationSlackBytes longer than the
/// extent) and returns the bytes that it moved. Called by several threads at once.
using ExtentReader = std::function<Result<std::uint64_t>(std::size_t index, std::byte* into)>;

inline constexpr std::uint32_t kCalibrationSlackBytes = 8192;

/// One device and where to read it. `count_path` is a file on it, for the device's own count;
/// empty = do not look.
struct CalibrationTarget {
  std::string device_id;
  std::vector<std::uint32_t> sizes_bytes;  ///< of extent 0, 1, ...
  ExtentReader read;
  std::string mode;  ///< "O_DIRECT", "buffered, cache dropped", "MPI-IO", ...
  std::string count_path;
};

/// Positioned reads past the page cache: O_DIRECT, or where the file system refuses it buffered
/// with the range dropped before each read (the mode says which).
Result<CalibrationTarget> raw_target(std::string device_id, std::vector<Extent> extents);
/// Writes a file of `size_bytes` that no device can compress at `path`, syncs it, and targets it.
/// An error leaves no file; else the caller unlinks it.
Result<CalibrationTarget> scratch_target(std::string device_id, const std::string& path,
                                         std::uint64_t size_bytes, std::uint32_t extent_bytes);

struct CalibrationOptions {
  std::uint32_t threads = 8;  ///< a device; each has one read in flight
  Nanos discard_ns = kSecond / 2;
  Nanos measure_ns = 2 * kSecond;
  const std::atomic<bool>* stop = nullptr;  ///< ends it with kClosed

  bool stopped() const { return stop != nullptr && stop->load(); }
};
/// What a measurement that was stopped returns.
inline Status calibration_stopped() { return {Code::kClosed, "interrupted while calibrating"}; }

/// What was seen of one device.
struct DeviceRate {
  std::string device_id;
  double bytes_per_s = 0;
  std::uint64_t asked_bytes = 0;               ///< the discarded part included
  std::optional<std::uint64_t> counted_bytes;  ///< by the device itself; none: unavailable
  std::string mode;
  std::string why_not{};  ///< of a probe that could not measure; the rate is 0 then
  /// |counted - asked| / asked; 0 when unavailable.
  double count_off() const;
  bool count_agrees() const;  ///< within 2 %
};

/// How much had moved at a time.
struct RateSample {
  double at_s = 0, bytes = 0;
};
/// Slope of the least-squares line: unlike last minus first it is off by 1/n^2 only when bytes come
/// in n bursts (a throttle's slices, a window of reads that end together). 0 below two samples.
double slope_bytes_per_s(std::span<const RateSample> samples);

/// All targets at the same time, each saturated by its own threads, which are joined here. One
/// target = alone.
Result<std::vector<DeviceRate>> measure_rates(std::span<const CalibrationTarget> targets,
                                              const CalibrationOptions& options);
/// One thread's copies between two large buffers, for host memory as a device.
double measure_copy_rate(std::uint64_t size_bytes, Nanos measure_ns);

/// A slot of a tier that holds a block.
struct TierSlot {
  SlotRef at;
  std::uint32_t size_bytes = 0;
};
/// Reads the slots in turn through the tier itself (submit, poll), `in_flight` at a time. The
/// caller is the tier's progress thread. For throttled tiers, whose configured rate this checks.
Result<DeviceRate> measure_tier_rate(Tier& tier, std::span<const TierSlot> slots,
                                     std::uint32_t in_flight, const CalibrationOptions& options);
/// Not ok when `measured` is off the configured rate by more than 2 %.
Status check_throttled_rate(const DeviceRate& measured, std::uint64_t configured_bytes_per_s);

/// A throttled tier opened once more: the same kind on the same disk behind the same limiter, over
/// blocks of its own, since the engine owns the tiers of the run.
struct RateProbe {
  std::shared_ptr<void> place;  ///< of its blocks; gone after the tier
  std::unique_ptr<Tier> tier;
  std::vector<TierSlot> slots;
  std::uint32_t in_flight = 1;
};
/// Opens the probe of one of this rank's tiers, by index.
using OpenProbe = std::function<Result<RateProbe>(std::size_t tier)>;

/// Before and after a run, alone and all devices at once.
struct Calibration {
  std::vector<DeviceRate> alone, joint;
};
struct CalibratedDevice {
  std::string device_id;
  double rate_bytes_per_s = 0;        ///< the higher of before and after
  double joint_rate_bytes_per_s = 0;  ///< likewise; 0 = not measured
  double drift = 0;                   ///< |after - before| / the higher one
  bool drifted = false;               ///< > 5 %: marks the run
  bool count_agrees = true;
  double count_off = 0;  ///< the greater of before and after
  std::string mode;
};
/// Matches devices by id; those of `before` that `after` lacks keep their rate.
std::vector<CalibratedDevice> combine(const Calibration& before, const Calibration& after);

/// A line for each device that drifted or whose own count disagrees.
std::vector<std::string> marks_of(std::span<const CalibratedDevice> devices);

inline constexpr double kDriftMax = 0.05;
inline constexpr double kCountToleranceMax = 0.02;

nlohmann::json to_json(const Calibration& calibration);
nlohmann::json to_json(std::span<const CalibratedDevice> devices, double rate_scale);

}  // namespace kvstream
