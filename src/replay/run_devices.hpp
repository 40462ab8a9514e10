// The physical devices of a run: which tier lies on which, and how fast each is.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
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
  static Result<RunDevices> open(Group& group, const std::vector<ReplayTier>& tiers,
                                 std::uint32_t copy_threads);

  /// Measures what is not throttled, alone and jointly; before the first side and after the last.
  Status measure(Group& group, Calibrate calibrate, const CalibrationOptions& options);
  /// All devices with the rates known so far; a rate of 0 was not measured.
  std::vector<DeviceSpeed> speeds() const;
  /// Whether a bound can be computed.
  bool all_known() const;
  nlohmann::json to_json(double rate_scale) const;
  /// A device whose rate moved by more than 5 % between the two measurements.
  bool drifted() const;

  const std::vector<std::uint32_t>& device_of_tier() const { return device_of_tier_; }
  std::uint32_t memory_device() const { return memory_device_; }

 private:
  struct Known {
    std::string id;
    std::string path;            ///< where this rank may read it; "" = memory, or not here
    std::uint32_t owner = 0;     ///< the rank that measures it
    double configured_rate = 0;  ///< of a throttle
    double credit_bytes = 0;
    bool kernel_throttled = false;  ///< free credit after each idle gap
  };
  Status measure_into(Group& group, Calibrate calibrate, const CalibrationOptions& options,
                      Calibration& into);
  Result<std::vector<DeviceRate>> measure_mine(const CalibrationOptions& options, std::size_t only);

  std::vector<Known> known_;
  std::vector<std::uint32_t> device_of_tier_;
  std::uint32_t memory_device_ = kNoDevice;
  std::uint32_t rank_ = 0;
  std::uint32_t copies_at_once_ = 1;
  Calibration before_, after_;
  bool measured_before_ = false;
};

}  // namespace kvstream
