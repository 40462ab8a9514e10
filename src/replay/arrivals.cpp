#include "replay/arrivals.hpp"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "replay/distributions.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kConcurrencyMax = 1U << 20U;

/// Times in units of a mean gap, the first 0.
std::vector<double> draw_times(std::size_t count, const ArrivalOptions& options) {
  Random random(mix64(options.seed) ^ 0x6172726976616c73U);  // apart from the generators' draws
  const double shape = 1.0 / (options.cv * options.cv);
  std::vector<double> times(count);
  for (std::size_t i = 1; i < count; ++i) {
    const double gap = options.process == ArrivalProcess::kPoisson ? random.exponential(1.0)
                                                                   : gamma(random, shape) / shape;
    times[i] = times[i - 1] + gap;
  }
  return times;
}

double own_rate_per_s(const Workload& workload) {
  if (!workload.timed || workload.requests.size() < 2) return 0;
  const Nanos span = workload.requests.back().arrival_ns - workload.requests.front().arrival_ns;
  return span <= 0 ? 0
                   : static_cast<double>(workload.requests.size() - 1) /
                         (static_cast<double>(span) / static_cast<double>(kSecond));
}

Status check(const Workload& workload, const ArrivalOptions& options) {
  if (!(options.rate_per_s >= 0) || !(options.cv > 0) || options.cv > 100) {
    return {Code::kInvalidArgument, fmt::format("rate {} and cv {} are not >= 0 and in (0, 100]",
                                                options.rate_per_s, options.cv)};
  }
  if (options.process == ArrivalProcess::kPoisson && options.cv != 1.0) {
    return {Code::kInvalidArgument,
            fmt::format("arrivals poisson have a cv of 1, not {}: use arrivals gamma", options.cv)};
  }
  if (options.process == ArrivalProcess::kTrace && !workload.timed) {
    return {Code::kInvalidArgument,
            fmt::format("{} has no arrivals of its own: use arrivals poisson or gamma with a rate, "
                        "or closed",
                        workload.name)};
  }
  if (options.process != ArrivalProcess::kTrace && options.rate_per_s <= 0 &&
      own_rate_per_s(workload) <= 0) {
    return {
        Code::kInvalidArgument,
        fmt::format("{} has no arrival rate of its own: give a rate in requests/s", workload.name)};
  }
  return Status::ok();
}

}  // namespace

Result<ArrivalOptions> parse_arrivals(std::string_view text) {
  ArrivalOptions options;
  if (text == "closed") return options;
  if (text.starts_with("closed:")) {
    const std::string_view number = text.substr(7);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), options.concurrency);
    if (error == std::errc{} && end == number.data() + number.size() && options.concurrency >= 1 &&
        options.concurrency <= kConcurrencyMax) {
      return options;
    }
  }
  if (text == "trace") options.process = ArrivalProcess::kTrace;
  if (text == "poisson") options.process = ArrivalProcess::kPoisson;
  if (text == "gamma") options.process = ArrivalProcess::kGamma;
  if (options.process != ArrivalProcess::kClosed) return options;
  return failure(
      Code::kInvalidArgument,
      fmt::format("arrivals: \"{}\" is not closed, closed:N, trace, poisson or gamma", text));
}

Status assign_arrivals(Workload& workload, const ArrivalOptions& options) {
  auto& requests = workload.requests;
  if (options.process == ArrivalProcess::kClosed || requests.empty()) return Status::ok();
  if (Status status = check(workload, options); !status.is_ok()) return status;
  const bool own = options.process == ArrivalProcess::kTrace;
  if (own && options.rate_per_s <= 0) return Status::ok();
  const double rate = options.rate_per_s > 0 ? options.rate_per_s : own_rate_per_s(workload);
  std::vector<double> times;
  if (own) {
    for (const auto& request : requests) {
      times.push_back(static_cast<double>(request.arrival_ns - requests.front().arrival_ns));
    }
  } else {
    times = draw_times(requests.size(), options);
  }
  const double last_ns =
      static_cast<double>(requests.size() - 1) / rate * static_cast<double>(kSecond);
  const double stretch = times.back() > 0 ? last_ns / times.back() : 0.0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival_ns = static_cast<Nanos>(std::llround(times[i] * stretch));
  }
  workload.timed = true;
  return Status::ok();
}

Workload interleave(Workload workload, std::uint32_t open_max, std::uint64_t seed) {
  std::vector<std::vector<std::size_t>> conversations;
  absl::flat_hash_map<std::uint64_t, std::size_t> number_of;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const auto [at, fresh] =
        number_of.try_emplace(workload.requests[i].conversation, conversations.size());
    if (fresh) conversations.emplace_back();
    conversations[at->second].push_back(i);
  }
  struct Open {
    std::size_t conversation, next;
  };
  std::vector<Open> open;
  std::size_t begun = 0;
  while (begun < conversations.size() && open.size() < std::max(1U, open_max)) {
    open.push_back({begun++, 0});
  }
  Random random(seed);
  std::vector<WorkloadRequest> mixed;
  mixed.reserve(workload.requests.size());
  while (!open.empty()) {
    Open& turn = open[random.between(0, open.size() - 1)];
    const auto& members = conversations[turn.conversation];
    mixed.push_back(std::move(workload.requests[members[turn.next++]]));
    if (turn.next < members.size()) continue;
    if (begun < conversations.size()) {
      turn = {begun++, 0};
    } else {
      turn = open.back();
      open.pop_back();
    }
  }
  workload.requests = std::move(mixed);
  return workload;
}

}  // namespace kvstream
