// The periods in which the readers of a run were busy, each with its bound. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"
#include "replay/rank_steps.hpp"

namespace kvstream {

/// One device of the run, as calibration found it (calibration.hpp).
struct DeviceSpeed {
  std::string device_id;
  double rate_bytes_per_s = 0;        ///< alone; for a throttled tier the configured rate
  double joint_rate_bytes_per_s = 0;  ///< all devices read at the same time; 0 = not measured
  double credit_bytes = 0;            ///< a throttle's burst; rate x 0.1 s on a kernel throttle
};

/// Begins when a rank of a set that shares a device has an unread block, ends when none has.
struct BusyPeriod {
  Nanos start = 0, end = 0;
  double t_s = 0;                        ///< end - start
  double t_star_s = 0;                   ///< its bound, from `start`
  std::optional<double> t_star_joint_s;  ///< the same with the joint rates
  std::uint64_t bytes = 0;               ///< work, each key once (and what further askers took)
  std::uint32_t steps = 0;
  double last_release_share = 0;  ///< (last release - start) / t_s
  bool counts = false;            ///< T* >= 0.5 s and last_release_share <= 0.1
  /// Bytes of its keys, each once, / (sum of the rates of the devices that could serve them x t_s).
  /// What further askers took over memory counts on neither side.
  double work_share = 0;
  double work_rate_bytes_per_s = 0;  ///< that sum of rates
};

/// `bound` of the JSON.
struct BoundReport {
  std::vector<DeviceSpeed> devices;
  std::vector<BusyPeriod> periods;
  std::uint32_t counting = 0;
  double t_star_s = 0, t_star_joint_s = 0, t_s = 0;  ///< sums over the periods that count
  std::optional<double> efficiency;                  ///< none counts: null
  std::optional<double> efficiency_joint;
  /// Of the periods that do not count: bytes / (sum of rates x T), and the mean time of a step
  /// beside that of one block read alone at its fastest device.
  std::optional<double> work_share_of_others;
  double others_step_s = 0, others_block_read_s = 0;
};

inline constexpr double kCountingBoundSecondsMin = 0.5;
inline constexpr double kLastReleaseShareMax = 0.1;
inline constexpr double kEfficiencyMax = 1.01;

/// Errors: a tier mapped to no such device, a device without a rate, steps that end before they
/// begin. Time and memory are linear in blocks, but for the flow of each period.
Result<BoundReport> find_busy_periods(std::span<const DeviceSpeed> devices,
                                      std::span<const RankSteps> ranks);
/// Not ok when the efficiency is above 1.01: then the bound is wrong.
Status check_bound(const BoundReport& report);
/// Rates here and represented (here x rate_scale, MEASURE section 1), T*, T, efficiency, periods.
nlohmann::json to_json(const BoundReport& report, double rate_scale);

/// Part of [start, end] in which some rank had a block unread (over sets of ranks that share no
/// device: the mean).
double read_busy_share(std::span<const RankSteps> ranks, Nanos start, Nanos end);
/// Part of [start, end] in which an engine waits for reads, mean over ranks (`sync`: a step that is
/// being loaded is waited for).
double io_share(std::span<const RankSteps> ranks, Nanos start, Nanos end);
/// Times of the steps that read anything, in seconds.
std::vector<double> step_read_times_s(std::span<const RankSteps> ranks);

}  // namespace kvstream
