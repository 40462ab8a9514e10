#include "replay/busy_periods.hpp"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "replay/bound.hpp"

namespace kvstream {
namespace {

double seconds(Nanos duration) { return static_cast<double>(duration) * 1e-9; }

struct BlockWork {
  std::uint64_t key64 = 0;
  std::uint64_t devices = 0;
  std::uint32_t bytes = 0;
};

/// What of a StepRecord the bound wants.
struct StepWork {
  Nanos released = 0, ended = 0;
  std::uint32_t memory_device = kNoDevice;
  std::uint64_t devices = 0;  ///< of all its blocks
  std::vector<BlockWork> blocks;
};

struct Interval {
  Nanos start = 0, end = 0;
};

/// Devices that could serve the block; 0 when one of its tiers takes no time, or it was no hit.
std::uint64_t devices_of(const StepRecord::Block& block, const RankSteps& rank) {
  if (!block.hit) return 0;
  std::uint64_t devices = 0;
  // The one that served it belongs to them, whatever the plan knew.
  const std::uint64_t tiers = block.sources | std::uint64_t{1} << (block.source & 63U);
  for (std::uint64_t left = tiers; left != 0; left &= left - 1) {
    const auto tier = static_cast<std::size_t>(std::countr_zero(left));
    if (tier >= rank.device_of_tier.size()) continue;
    if (rank.device_of_tier[tier] == kNoDevice) return 0;
    devices |= std::uint64_t{1} << rank.device_of_tier[tier];
  }
  return devices;
}

StepWork condense(const StepRecord& record, const RankSteps& rank) {
  StepWork step;
  step.released = record.released_at + rank.clock_offset;
  step.ended = record.ended_at + rank.clock_offset;
  step.memory_device = rank.memory_device;
  for (const StepRecord::Block& block : record.blocks) {
    const std::uint64_t devices = devices_of(block, rank);
    if (devices == 0) continue;
    step.devices |= devices;
    step.blocks.push_back({block.key64, devices, block.size_bytes});
  }
  return step;
}

/// Steps that read something, by set of devices that ranks share, each set in order of release.
std::vector<std::vector<StepWork>> group_steps(std::span<const RankSteps> ranks) {
  // No two of the sets overlap: a rank's own joins all that it meets.
  std::vector<std::uint64_t> sets;
  std::vector<StepWork> all;
  for (const RankSteps& rank : ranks) {
    std::uint64_t of_rank = 0;
    for (const StepRecord& record : rank.steps) {
      StepWork step = condense(record, rank);
      if (step.blocks.empty()) continue;
      of_rank |= step.devices;
      all.push_back(std::move(step));
    }
    std::erase_if(sets, [&](std::uint64_t set) {
      const bool shared = (set & of_rank) != 0;
      if (shared) of_rank |= set;
      return shared;
    });
    if (of_rank != 0) sets.push_back(of_rank);
  }
  std::vector<std::vector<StepWork>> grouped(sets.size());
  for (StepWork& step : all) {
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if ((sets[i] & step.devices) == 0) continue;
      grouped[i].push_back(std::move(step));
      break;
    }
  }
  for (std::vector<StepWork>& steps : grouped) {
    std::stable_sort(steps.begin(), steps.end(),
                     [](const StepWork& a, const StepWork& b) { return a.released < b.released; });
  }
  return grouped;
}

/// Index behind the last step of the period that begins with steps[first]; its end in `end`.
std::size_t period_end(std::span<const StepWork> steps, std::size_t first, Nanos& end) {
  end = steps[first].ended;
  std::size_t next = first + 1;
  while (next < steps.size() && steps[next].released < end) {
    end = std::max(end, steps[next].ended);
    ++next;
  }
  return next;
}

/// The flow of a period, and what of it are keys rather than further askers.
struct PeriodWork {
  BoundProblem problem;
  double key_bytes = 0;
  std::uint64_t key_devices = 0;  ///< that could serve a key
};

/// Each key once on the devices, at its first release, from any device that any asker could use;
/// each further asker over its own memory.
PeriodWork work_of(std::span<const StepWork> steps, std::span<const DeviceSpeed> devices) {
  PeriodWork work;
  BoundProblem& problem = work.problem;
  for (const DeviceSpeed& device : devices) {
    problem.devices.push_back({device.rate_bytes_per_s, device.credit_bytes, kNoLink});
  }
  absl::flat_hash_map<std::uint64_t, std::size_t> group_of_key;
  const Nanos start = steps.front().released;
  for (const StepWork& step : steps) {
    const double release_s = seconds(step.released - start);
    double again_bytes = 0;
    for (const BlockWork& block : step.blocks) {
      const auto [at, first] = group_of_key.try_emplace(block.key64, problem.groups.size());
      work.key_devices |= block.devices;
      if (first) {
        work.key_bytes += block.bytes;
        problem.groups.push_back({block.devices, release_s, static_cast<double>(block.bytes)});
      } else {
        problem.groups[at->second].devices |= block.devices;
        again_bytes += block.bytes;
      }
    }
    if (again_bytes > 0 && step.memory_device != kNoDevice) {
      problem.groups.push_back({std::uint64_t{1} << step.memory_device, release_s, again_bytes});
    }
  }
  return work;
}

Result<std::optional<double>> joint_bound(BoundProblem& problem,
                                          std::span<const DeviceSpeed> devices,
                                          std::uint64_t used) {
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if ((used >> d & 1U) == 0) continue;
    if (!(devices[d].joint_rate_bytes_per_s > 0)) return std::optional<double>();
    problem.devices[d].rate_bytes_per_s = devices[d].joint_rate_bytes_per_s;
  }
  Result<double> bound = least_time_s(problem);
  if (!bound) return failure(bound.error());
  return std::optional<double>(*bound);
}

Result<BusyPeriod> make_period(std::span<const StepWork> steps, Nanos end,
                               std::span<const DeviceSpeed> devices) {
  BusyPeriod period;
  period.start = steps.front().released;
  period.end = end;
  period.t_s = seconds(end - period.start);
  period.steps = static_cast<std::uint32_t>(steps.size());

  PeriodWork work = work_of(steps, devices);
  BoundProblem& problem = work.problem;
  std::uint64_t used = 0;
  double bytes = 0;
  for (const BoundGroup& group : problem.groups) {
    used |= group.devices;
    bytes += group.bytes;
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if ((work.key_devices >> d & 1U) != 0) {
      period.work_rate_bytes_per_s += devices[d].rate_bytes_per_s;
    }
  }
  Result<double> bound = least_time_s(problem);
  if (!bound) return failure(bound.error());
  period.t_star_s = *bound;
  Result<std::optional<double>> joint = joint_bound(problem, devices, used);
  if (!joint) return failure(joint.error());
  period.t_star_joint_s = *joint;

  period.bytes = static_cast<std::uint64_t>(bytes);
  const double last_release_s = seconds(steps.back().released - period.start);
  period.last_release_share = period.t_s > 0 ? last_release_s / period.t_s : 0;
  const double could_bytes = period.work_rate_bytes_per_s * period.t_s;
  period.work_share = could_bytes > 0 ? work.key_bytes / could_bytes : 0;
  period.counts = period.t_star_s >= kCountingBoundSecondsMin &&
                  period.last_release_share <= kLastReleaseShareMax;
  return period;
}

/// Running sums over the periods that do not count.
struct Others {
  double bytes = 0, could_bytes = 0;
  double step_s = 0, block_read_s = 0;
  std::uint64_t steps = 0, blocks = 0;

  void add(const BusyPeriod& period, std::span<const StepWork> of,
           std::span<const DeviceSpeed> devices) {
    const double could = period.work_rate_bytes_per_s * period.t_s;
    bytes += period.work_share * could;
    could_bytes += could;
    for (const StepWork& step : of) {
      step_s += seconds(step.ended - step.released);
      ++steps;
      for (const BlockWork& block : step.blocks) {
        double fastest = 0;
        for (std::uint64_t left = block.devices; left != 0; left &= left - 1) {
          const auto device = static_cast<std::size_t>(std::countr_zero(left));
          fastest = std::max(fastest, devices[device].rate_bytes_per_s);
        }
        block_read_s += block.bytes / fastest;
        ++blocks;
      }
    }
  }
};

Status check(std::span<const DeviceSpeed> devices, std::span<const RankSteps> ranks) {
  if (devices.size() > kBoundDevicesMax) {
    return {Code::kInvalidArgument,
            fmt::format("{} devices in the bound (at most {})", devices.size(), kBoundDevicesMax)};
  }
  for (const DeviceSpeed& device : devices) {
    if (device.rate_bytes_per_s > 0) continue;
    return {Code::kInvalidArgument,
            fmt::format("device {} has no measured rate", device.device_id)};
  }
  for (const RankSteps& rank : ranks) {
    for (const std::uint32_t device : rank.device_of_tier) {
      if (device == kNoDevice || device < devices.size()) continue;
      return {Code::kInvalidArgument,
              fmt::format("rank {}: a tier on device {} of {}", rank.rank, device, devices.size())};
    }
    if (rank.memory_device != kNoDevice && rank.memory_device >= devices.size()) {
      return {Code::kInvalidArgument, fmt::format("rank {}: memory is device {} of {}", rank.rank,
                                                  rank.memory_device, devices.size())};
    }
    for (const StepRecord& step : rank.steps) {
      if (step.ended_at >= step.released_at) continue;
      return {Code::kInvalidArgument, fmt::format("rank {}: a step ends {} ns before its release",
                                                  rank.rank, step.released_at - step.ended_at)};
    }
  }
  return Status::ok();
}

void sum_up(BoundReport& report, const Others& others) {
  bool all_joint = true;
  for (const BusyPeriod& period : report.periods) {
    if (!period.counts) continue;
    ++report.counting;
    report.t_star_s += period.t_star_s;
    report.t_s += period.t_s;
    report.t_star_joint_s += period.t_star_joint_s.value_or(0);
    all_joint = all_joint && period.t_star_joint_s.has_value();
  }
  if (report.counting > 0 && report.t_s > 0) {
    report.efficiency = report.t_star_s / report.t_s;
    if (all_joint) report.efficiency_joint = report.t_star_joint_s / report.t_s;
  }
  if (others.could_bytes > 0) report.work_share_of_others = others.bytes / others.could_bytes;
  if (others.steps > 0) report.others_step_s = others.step_s / static_cast<double>(others.steps);
  if (others.blocks > 0) {
    report.others_block_read_s = others.block_read_s / static_cast<double>(others.blocks);
  }
}

/// Seconds of [start, end] that the intervals, in order of their start, cover.
double covered_s(std::span<const Interval> sorted, Nanos start, Nanos end) {
  double sum = 0;
  Nanos reached = start;
  for (const Interval& interval : sorted) {
    const Nanos from = std::max(interval.start, reached);
    const Nanos to = std::min(interval.end, end);
    if (to <= from) continue;
    sum += seconds(to - from);
    reached = to;
  }
  return sum;
}

}  // namespace

Result<BoundReport> find_busy_periods(std::span<const DeviceSpeed> devices,
                                      std::span<const RankSteps> ranks) {
  if (Status status = check(devices, ranks); !status.is_ok()) return failure(std::move(status));
  BoundReport report;
  report.devices.assign(devices.begin(), devices.end());
  Others others;
  for (const std::vector<StepWork>& steps : group_steps(ranks)) {
    for (std::size_t first = 0; first < steps.size();) {
      Nanos end = 0;
      const std::size_t next = period_end(steps, first, end);
      const auto of = std::span(steps).subspan(first, next - first);
      Result<BusyPeriod> period = make_period(of, end, devices);
      if (!period) return failure(period.error());
      if (!period->counts) others.add(*period, of, devices);
      report.periods.push_back(std::move(*period));
      first = next;
    }
  }
  std::sort(report.periods.begin(), report.periods.end(),
            [](const BusyPeriod& a, const BusyPeriod& b) { return a.start < b.start; });
  sum_up(report, others);
  return report;
}

Status check_bound(const BoundReport& report) {
  if (!report.efficiency || *report.efficiency <= kEfficiencyMax) return Status::ok();
  return {Code::kCorrupt,
          fmt::format(
              "efficiency {:.3f} is above {} (T* {:.3f} s, T {:.3f} s over {} periods); the "
              "bound or a measured rate is wrong: calibrate again",
              *report.efficiency, kEfficiencyMax, report.t_star_s, report.t_s, report.counting)};
}

double read_busy_share(std::span<const RankSteps> ranks, Nanos start, Nanos end) {
  if (end <= start) return 0;
  double sum = 0;
  std::size_t sets = 0;
  for (const std::vector<StepWork>& steps : group_steps(ranks)) {
    std::vector<Interval> intervals;
    for (const StepWork& step : steps) intervals.push_back({step.released, step.ended});
    sum += covered_s(intervals, start, end) / seconds(end - start);
    ++sets;
  }
  return sets ? sum / static_cast<double>(sets) : 0;
}

double io_share(std::span<const RankSteps> ranks, Nanos start, Nanos end) {
  if (end <= start || ranks.empty()) return 0;
  double sum = 0;
  for (const RankSteps& rank : ranks) {
    std::vector<Interval> intervals;
    for (const StepRecord& step : rank.steps) {
      intervals.push_back(
          {step.released_at + rank.clock_offset, step.ended_at + rank.clock_offset});
    }
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.start < b.start; });
    sum += covered_s(intervals, start, end) / seconds(end - start);
  }
  return sum / static_cast<double>(ranks.size());
}

std::vector<double> step_read_times_s(std::span<const RankSteps> ranks) {
  std::vector<double> times;
  for (const RankSteps& rank : ranks) {
    for (const StepRecord& step : rank.steps) {
      const bool read = std::any_of(step.blocks.begin(), step.blocks.end(),
                                    [](const StepRecord::Block& block) { return block.hit; });
      if (read) times.push_back(seconds(step.ended_at - step.released_at));
    }
  }
  return times;
}

}  // namespace kvstream
