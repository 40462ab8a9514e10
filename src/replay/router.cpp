#include "replay/router.hpp"

#include <absl/container/flat_hash_map.h>

#include <algorithm>

namespace kvstream {
namespace {

double tokens_of(const TraceRequest& request) {
  return static_cast<double>(request.input_tokens) + request.output_tokens;
}

/// Estimated outstanding tokens of each rank.
class Loads {
 public:
  Loads(std::span<const TraceRequest> requests, std::uint32_t ranks) : tokens_(ranks, 0.0) {
    double all = 0;
    for (const auto& request : requests) all += tokens_of(request);
    const Nanos span =
        requests.empty() ? 0 : requests.back().arrival_ns - requests.front().arrival_ns;
    timed_ = span > 0;
    const double units = timed_ ? static_cast<double>(span) : static_cast<double>(requests.size());
    drain_ = units > 0 ? all / units / ranks : 0;
    mean_request_ = requests.empty() ? 0 : all / static_cast<double>(requests.size());
  }

  void pass_to(std::size_t index, const TraceRequest& request) {
    const double now =
        timed_ ? static_cast<double>(request.arrival_ns) : static_cast<double>(index);
    const double drained = std::max(0.0, now - now_) * drain_;
    for (double& tokens : tokens_) tokens = std::max(0.0, tokens - drained);
    now_ = std::max(now_, now);
  }

  std::uint32_t least() const {
    return static_cast<std::uint32_t>(std::min_element(tokens_.begin(), tokens_.end()) -
                                      tokens_.begin());
  }
  double of(std::uint32_t rank) const { return tokens_[rank]; }
  void add(std::uint32_t rank, double tokens) { tokens_[rank] += tokens; }
  double mean_request() const { return mean_request_; }

 private:
  std::vector<double> tokens_;
  bool timed_ = false;
  double drain_ = 0, mean_request_ = 0, now_ = 0;
};

/// Who had each prefix last.
class PrefixOwners {
 public:
  /// The last owner of the longest known prefix, or `none`.
  std::uint32_t find(const TraceRequest& request, std::uint32_t none) const {
    std::uint32_t rank = none;
    for (const auto& key : request.keys) {
      const auto found = owners_.find(key);
      if (found == owners_.end()) break;
      rank = found->second;
    }
    return rank;
  }
  void put(const TraceRequest& request, std::uint32_t rank) {
    for (const auto& key : request.keys) owners_[key] = rank;
  }

 private:
  absl::flat_hash_map<BlockKey, std::uint32_t> owners_;
};

}  // namespace

std::vector<std::uint32_t> route(std::span<const TraceRequest> requests, std::uint32_t ranks,
                                 const RouterOptions& options) {
  std::vector<std::uint32_t> result(requests.size(), 0);
  if (ranks <= 1) return result;
  Loads loads(requests, ranks);
  PrefixOwners owners;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const TraceRequest& request = requests[i];
    if (options.router == Router::kRoundRobin) {
      result[i] = static_cast<std::uint32_t>(i % ranks);
      continue;
    }
    loads.pass_to(i, request);
    const std::uint32_t least = loads.least();
    std::uint32_t rank = least;
    if (options.router == Router::kPrefix) {
      rank = owners.find(request, least);
      const double bound = options.overload_factor * loads.of(least) +
                           options.overload_requests * loads.mean_request();
      if (loads.of(rank) > bound) rank = least;
      owners.put(request, rank);
    }
    loads.add(rank, tokens_of(request));
    result[i] = rank;
  }
  return result;
}

}  // namespace kvstream
