#include "replay/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

namespace kvstream {
namespace {

constexpr double kCoverageMin = 0.95;
constexpr std::size_t kOrderStatisticPairsMin = 6;

double quantile(std::span<const double> sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = rank - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// 0.975 quantile of Student's t with 1-4 degrees of freedom.
constexpr std::array<double, 4> kStudentT975 = {12.7062, 4.3027, 3.1824, 2.7764};

void student_interval(std::span<const double> logs, RatioInterval& result) {
  const double mean = mean_of(logs);
  double squares = 0;
  for (const double value : logs) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(logs.size());
  const double error = std::sqrt(squares / (count - 1) / count);
  const double half = kStudentT975[logs.size() - 2] * error;
  result.method = IntervalMethod::kStudentT;
  result.ratio = std::exp(mean);
  result.low = std::exp(mean - half);
  result.high = std::exp(mean + half);
  result.coverage = kCoverageMin;
}

/// [x(k), x(n+1-k)] covers the median with 1 - 2 P(Binomial(n, 1/2) < k); the greatest k whose
/// coverage is enough.
void order_interval(std::span<const double> sorted_logs, RatioInterval& result) {
  const std::size_t n = sorted_logs.size();
  double term = std::pow(0.5, static_cast<double>(n));  // P(Binomial = 0)
  double below = term;
  std::size_t k = 1;
  double coverage = 1 - 2 * below;
  while (2 * (k + 1) <= n) {
    term *= static_cast<double>(n - k + 1) / static_cast<double>(k);
    below += term;
    if (1 - 2 * below < kCoverageMin) break;
    coverage = 1 - 2 * below;
    ++k;
  }
  result.method = IntervalMethod::kOrderStatistic;
  result.ratio = std::exp(quantile(sorted_logs, 0.5));
  result.low = std::exp(sorted_logs[k - 1]);
  result.high = std::exp(sorted_logs[n - k]);
  result.coverage = coverage;
}

std::string_view name_of(IntervalMethod method) {
  switch (method) {
    case IntervalMethod::kStudentT:
      return "student_t_of_mean_log_ratio";
    case IntervalMethod::kOrderStatistic:
      return "order_statistics_of_median";
    case IntervalMethod::kNone:
      break;
  }
  return "none";
}

nlohmann::json or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace

Summary summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  summary.count = values.size();
  summary.mean = mean_of(values);
  summary.p50 = quantile(values, 0.50);
  summary.p90 = quantile(values, 0.90);
  summary.p99 = quantile(values, 0.99);
  summary.min = values.front();
  summary.max = values.back();
  return summary;
}

nlohmann::json to_json(const Summary& summary) {
  const auto value = [&](double x) {
    return summary.count ? nlohmann::json(x) : nlohmann::json(nullptr);
  };
  return {{"count", summary.count},    {"mean", value(summary.mean)}, {"p50", value(summary.p50)},
          {"p90", value(summary.p90)}, {"p99", value(summary.p99)},   {"min", value(summary.min)},
          {"max", value(summary.max)}};
}

Result<RatioInterval> paired_ratio(std::span<const double> numerators,
                                   std::span<const double> denominators) {
  if (numerators.empty() || numerators.size() != denominators.size()) {
    return failure(Code::kInvalidArgument,
                   fmt::format("paired ratio of {} and {} values (want as many, at least one)",
                               numerators.size(), denominators.size()));
  }
  std::vector<double> logs;
  for (std::size_t i = 0; i < numerators.size(); ++i) {
    const double ratio = numerators[i] / denominators[i];
    if (!(numerators[i] > 0) || !(denominators[i] > 0) || !std::isfinite(ratio) || ratio <= 0) {
      return failure(Code::kInvalidArgument,
                     fmt::format("pair {} is {} / {} (both must be positive numbers)", i,
                                 numerators[i], denominators[i]));
    }
    logs.push_back(std::log(ratio));
  }
  std::sort(logs.begin(), logs.end());
  RatioInterval result;
  result.pairs = static_cast<std::uint32_t>(logs.size());
  if (logs.size() == 1) {
    result.ratio = std::exp(logs[0]);
  } else if (logs.size() < kOrderStatisticPairsMin) {
    student_interval(logs, result);
  } else {
    order_interval(logs, result);
  }
  return result;
}

bool passes_bar(const RatioInterval& interval, double bar) {
  return interval.low.has_value() && *interval.low >= bar;
}

nlohmann::json to_json(const Comparison& comparison) {
  const RatioInterval& ratio = comparison.ratio;
  nlohmann::json json = {{"measure", comparison.measure},
                         {"side", comparison.side},
                         {"rival", comparison.rival},
                         {"pairs", ratio.pairs},
                         {"ratio", ratio.ratio},
                         {"interval", {or_null(ratio.low), or_null(ratio.high)}},
                         {"coverage", ratio.coverage},
                         {"interval_method", name_of(ratio.method)},
                         {"ceiling", or_null(comparison.ceiling)}};
  if (comparison.ceiling && *comparison.ceiling > 0) {
    const double ceiling = *comparison.ceiling;
    json["ceiling_formula"] = comparison.ceiling_formula;
    json["share_of_ceiling"] = ratio.ratio / ceiling;
    json["share_of_ceiling_low"] =
        ratio.low ? nlohmann::json(*ratio.low / ceiling) : nlohmann::json(nullptr);
  }
  if (!comparison.note.empty()) json["note"] = comparison.note;
  return json;
}

}  // namespace kvstream
