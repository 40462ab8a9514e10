#include "replay/trace_summary.hpp"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "replay/sharing.hpp"

namespace kvstream {
namespace {

/// Sums over places of a list, each in O(log n) (Fenwick 1994).
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t size) : tree_(size + 1, 0) {}
  void add(std::size_t place, std::int64_t value) {
    for (std::size_t i = place + 1; i < tree_.size(); i += i & (~i + 1)) tree_[i] += value;
  }
  /// Of places 0..place.
  std::int64_t sum(std::size_t place) const {
    std::int64_t result = 0;
    for (std::size_t i = place + 1; i > 0; i -= i & (~i + 1)) result += tree_[i];
    return result;
  }

 private:
  std::vector<std::int64_t> tree_;
};

/// Counts how many distinct blocks were used between two uses of a block, by whole requests: all
/// blocks of a request count as used at once.
class ReuseCounter {
 public:
  ReuseCounter(std::size_t requests, std::size_t blocks)
      : last_used_here_(requests), samples_every_(1 + blocks / kSamplesMax) {}

  void use(const TraceRequest& request, std::uint32_t index) {
    const auto distinct_before = static_cast<std::int64_t>(last_use_.size());
    std::uint32_t from = kNever;
    double distance = 0;
    for (const auto& key : request.keys) {
      const std::uint32_t last = last_use_[key].last;
      if (last == kNever) continue;
      if (last != from) {
        from = last;
        distance = static_cast<double>(distinct_before - last_used_here_.sum(from));
      }
      if (reuses_++ % samples_every_ == 0) distances_.push_back(distance);
    }
    for (const auto& key : request.keys) {
      Use& use = last_use_[key];
      if (use.last == index) continue;
      if (use.last != kNever) {
        last_used_here_.add(use.last, -1);
        use.again = true;
      }
      use.last = index;
      last_used_here_.add(index, 1);
    }
  }

  std::uint64_t distinct_blocks() const { return last_use_.size(); }
  double used_once() const {
    std::uint64_t once = 0;
    for (const auto& [key, use] : last_use_) once += use.again ? 0 : 1;
    return last_use_.empty() ? 0
                             : static_cast<double>(once) / static_cast<double>(last_use_.size());
  }
  std::vector<double> take_distances() { return std::move(distances_); }

 private:
  static constexpr std::size_t kSamplesMax = 4'000'000;
  static constexpr std::uint32_t kNever = UINT32_MAX;
  struct Use {
    std::uint32_t last = kNever;  ///< the request
    bool again = false;
  };

  absl::flat_hash_map<BlockKey, Use> last_use_;
  PrefixSums last_used_here_;
  std::uint64_t reuses_ = 0, samples_every_;
  std::vector<double> distances_;
};

void count_arrivals(std::span<const TraceRequest> requests, TraceSummary& summary) {
  if (requests.size() < 2) return;
  const auto gaps = static_cast<double>(requests.size() - 1);
  const double span_s =
      static_cast<double>(requests.back().arrival_ns - requests.front().arrival_ns) /
      static_cast<double>(kSecond);
  if (span_s <= 0) return;
  summary.arrival_rate_per_s = gaps / span_s;
  double squares = 0;
  for (std::size_t i = 1; i < requests.size(); ++i) {
    const double gap_s = static_cast<double>(requests[i].arrival_ns - requests[i - 1].arrival_ns) /
                         static_cast<double>(kSecond);
    squares += std::pow(gap_s - span_s / gaps, 2);
  }
  summary.arrival_cv = std::sqrt(squares / gaps) / (span_s / gaps);
}

}  // namespace

TraceSummary summarize_trace(std::span<const TraceRequest> requests, const BlockShape& shape,
                             bool timed) {
  TraceSummary summary;
  summary.requests = requests.size();
  std::vector<double> inputs, outputs;
  absl::flat_hash_set<std::uint64_t> conversations;
  for (const auto& request : requests) {
    inputs.push_back(request.input_tokens);
    outputs.push_back(request.output_tokens);
    summary.prompt_tokens += request.input_tokens;
    summary.output_tokens += request.output_tokens;
    summary.blocks += request.keys.size();
    conversations.insert(request.conversation);
  }
  summary.conversations = conversations.size();
  summary.input = summarize(std::move(inputs));
  summary.output = summarize(std::move(outputs));
  ReuseCounter reuse(requests.size(), summary.blocks);
  for (std::uint32_t i = 0; i < requests.size(); ++i) reuse.use(requests[i], i);
  summary.distinct_blocks = reuse.distinct_blocks();
  summary.distinct_used_once = reuse.used_once();
  summary.reuse_distance_blocks = summarize(reuse.take_distances());
  summary.sharing = measure_sharing(requests, shape);
  summary.distinct_represented_b =
      static_cast<double>(summary.distinct_blocks) * shape.block_tokens * shape.kv_bytes_per_token;
  if (timed) count_arrivals(requests, summary);
  return summary;
}

nlohmann::json to_json(const TraceSummary& summary) {
  return {{"requests", summary.requests},
          {"conversations", summary.conversations},
          {"prompt_tokens", summary.prompt_tokens},
          {"output_tokens", summary.output_tokens},
          {"input_tokens", to_json(summary.input)},
          {"request_output_tokens", to_json(summary.output)},
          {"blocks", summary.blocks},
          {"distinct_blocks", summary.distinct_blocks},
          {"distinct_blocks_used_once_share", summary.distinct_used_once},
          {"distinct_represented_bytes_max", summary.distinct_represented_b},
          {"sharing", summary.sharing},
          {"reuse_distance_blocks", to_json(summary.reuse_distance_blocks)},
          {"arrival_rate_per_s", summary.arrival_rate_per_s},
          {"arrival_cv", summary.arrival_cv}};
}

}  // namespace kvstream
