#include <nlohmann/json.hpp>

#include "replay/busy_periods.hpp"

namespace kvstream {
namespace {

constexpr std::size_t kPeriodsInJsonMax = 1000;

double seconds(Nanos duration) { return static_cast<double>(duration) * 1e-9; }

nlohmann::json period_json(const BusyPeriod& period, Nanos origin) {
  return {{"start_s", seconds(period.start - origin)},
          {"t_s", period.t_s},
          {"t_star_s", period.t_star_s},
          {"t_star_joint_s",
           period.t_star_joint_s ? nlohmann::json(*period.t_star_joint_s) : nlohmann::json()},
          {"bytes", period.bytes},
          {"steps", period.steps},
          {"last_release_share", period.last_release_share},
          {"work_share", period.work_share},
          {"counts", period.counts}};
}

}  // namespace

nlohmann::json to_json(const BoundReport& report, double rate_scale) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  nlohmann::json rates = nlohmann::json::object();
  for (const DeviceSpeed& device : report.devices) {
    rates[device.device_id] = {{"here", device.rate_bytes_per_s},
                               {"represented", device.rate_bytes_per_s * rate_scale},
                               {"joint_here", device.joint_rate_bytes_per_s > 0
                                                  ? nlohmann::json(device.joint_rate_bytes_per_s)
                                                  : nlohmann::json()},
                               {"free_credit_bytes", device.credit_bytes}};
  }
  nlohmann::json periods = nlohmann::json::array();
  for (const BusyPeriod& period : report.periods) {
    if (periods.size() == kPeriodsInJsonMax) break;
    periods.push_back(period_json(period, report.periods.front().start));
  }
  return {{"bandwidth_bytes_per_s", rates},
          {"t_star_s", report.t_star_s},
          {"t_star_joint_s",
           report.efficiency_joint ? nlohmann::json(report.t_star_joint_s) : nlohmann::json()},
          {"t_s", report.t_s},
          {"efficiency", or_null(report.efficiency)},
          {"efficiency_joint", or_null(report.efficiency_joint)},
          {"periods_all", report.periods.size()},
          {"periods_counting", report.counting},
          {"periods", periods},
          {"others",
           {{"work_share", or_null(report.work_share_of_others)},
            {"step_s", report.others_step_s},
            {"block_read_s", report.others_block_read_s}}}};
}

}  // namespace kvstream
