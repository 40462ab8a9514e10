// Percentiles, and ratios of interleaved pairs with their interval. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvstream/status.hpp"

namespace kvstream {

struct Summary {
  std::uint64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, min = 0, max = 0;
};
/// Percentiles interpolate between order statistics (rank q x (n - 1)). All zero when empty.
Summary summarize(std::vector<double> values);
/// {count, mean, p50, p90, p99}; the figures are null when nothing was counted.
nlohmann::json to_json(const Summary& summary);

/// Which interval stands beside the median.
enum class IntervalMethod : std::uint8_t {
  kNone,           ///< one pair
  kStudentT,       ///< 2-5 pairs: of the mean logarithm; the point is the geometric mean
  kOrderStatistic  ///< >= 6 pairs: exact, of the median, without assumptions; coverage >= 95 %
};

struct RatioInterval {
  std::uint32_t pairs = 0;
  double ratio = 0;  ///< median of the paired ratios (2-5 pairs: their geometric mean)
  std::optional<double> low, high;
  double coverage = 0;  ///< e.g. 0.984 for the extremes of 7 pairs
  IntervalMethod method = IntervalMethod::kNone;
};

/// Of numerators[i] / denominators[i], in the logarithm. Errors: lengths differ, none, a value that
/// is not a positive number.
Result<RatioInterval> paired_ratio(std::span<const double> numerators,
                                   std::span<const double> denominators);
/// A bar is judged by the lower end; without an interval it is not passed.
bool passes_bar(const RatioInterval& interval, double bar);

/// One line of `comparisons`: how much better `side` is than `rival` in one measure.
struct Comparison {
  std::string measure;  ///< "throughput_tokens_per_s", "ttft_s.mean", "step_read_s.mean", ...
  std::string side, rival;
  RatioInterval ratio;            ///< > 1 is better for `side`
  std::optional<double> ceiling;  ///< where there is one (ceiling.hpp)
  std::string ceiling_formula;
  std::string note;  ///< e.g. "hit ratios differ by 3.1 points", "the run drifted"
};
/// The ratio always beside its ceiling, with its share of it and that share's lower end.
nlohmann::json to_json(const Comparison& comparison);

}  // namespace kvstream
