// The physical devices of a run: which tier lies on which, and how fast each is.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kvstream/tier.hpp"
#include "ranks/group.hpp"
#include "replay/busy_periods.hpp"
#include "replay/calibration.hpp"
#include "replay/prefill.hpp"

namespace kvstream {

/// A tier as the replay sees it: what was asked for, and who else can read it.
struct ReplayTier {
  TierSpec spec;
  Visibility visibility = Visibility::kRank;
  bool persistent = true;
  std::uint64_t burst_bytes = 0;  ///< free credit of its throttle
};

/// kOff measures host memory alone, once: what is throttled needs nothing more for a bound.
enum class Calibrate : std::uint8_t { kOff, kOn };

/// Maps tiers of all ranks to devices, and measures them between the sides, outside measured time.
/// A throttled tier is a device of its configured rate; others are the drive or mount below their
/// path; host memory is one device a host. Called by all ranks together.
class RunDevices {
 public:
  /// `open_probe` is called by measure(); without it throttled tiers are not checked.
  static Result<RunDevices> open(Group& group, const std::vector<ReplayTier>& tiers,
                                 std::uint32_t copy_threads, OpenProbe open_probe = {});

  /// Before the first side and after the last: measures what is not throttled, alone, and all
  /// devices at the same time. Before the first also whether each throttle gives its rate.
  Status measure(Group& group, Calibrate calibrate, const CalibrationOptions& options);
  /// All devices with the rates known so far; a rate of 0 was not measured.
  std::vector<DeviceSpeed> speeds() const;
  /// Whether a bound can be computed.
  bool all_known() const;
  nlohmann::json to_json(double rate_scale) const;
  /// A device whose rate moved by more than 5 % between the two measurements.
  bool drifted() const;
  /// What is wrong with the figures of this run, a line each: drift, a device whose own count
  /// disagrees, a throttle that does not give its rate (or could not be checked).
  std::vector<std::string> marks() const;

  const std::vector<std::uint32_t>& device_of_tier() const { return device_of_tier_; }
  std::uint32_t memory_device() const { return memory_device_; }

 private:
  struct Known {
    std::string id;
    std::string path;         ///< where this rank may read it; "" = memory, or not here
    std::size_t tier = 0;     ///< of this rank, on it
    std::uint32_t owner = 0;  ///< the rank that measures it
    bool memory = false;
    double configured_rate = 0;  ///< of a throttle
    double credit_bytes = 0;
    bool kernel_throttled = false;  ///< free credit after each idle gap
  };
  Status measure_into(Group& group, Calibrate calibrate, const CalibrationOptions& options,
                      Calibration& into);
  Status measure_throttled(Group& group, const CalibrationOptions& options);
  Result<std::vector<DeviceRate>> measure_mine(const CalibrationOptions& options, std::size_t only);
  std::vector<DeviceRate> read_probes(const CalibrationOptions& options, std::size_t only);
  void open_probes();
  double joint_rate_of(const Known& device) const;
  const DeviceRate* check_of(const Known& device) const;
  nlohmann::json throttled_json(const Known& device, double rate_scale) const;

  std::vector<Known> known_;
  std::vector<std::uint32_t> device_of_tier_;
  std::uint32_t memory_device_ = kNoDevice;
  std::uint32_t rank_ = 0;
  std::uint32_t copies_at_once_ = 1;
  OpenProbe open_probe_;
  std::vector<std::optional<Result<RateProbe>>> probes_;  ///< by device; while measuring
  std::vector<DeviceRate> throttled_;                     ///< what each throttle gives alone
  Calibration before_, after_;
  bool measured_before_ = false;
};

}  // namespace kvstream
