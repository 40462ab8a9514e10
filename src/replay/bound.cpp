#include "replay/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace kvstream {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kCutsMax = 1000;

/// Max-flow by Dinic's algorithm over real capacities; capacities may grow between two calls of
/// augment(), which then goes on from the flow it has.
class FlowNetwork {
 public:
  FlowNetwork(std::size_t nodes, double tolerance) : heads_(nodes), tolerance_(tolerance) {}

  std::size_t add_edge(std::size_t from, std::size_t to, double capacity) {
    edges_.push_back({to, capacity});
    edges_.push_back({from, 0});
    heads_[from].push_back(edges_.size() - 2);
    heads_[to].push_back(edges_.size() - 1);
    return edges_.size() - 2;
  }
  void grow(std::size_t edge, double by) { edges_[edge].left += by; }

  /// What could be pushed on top of the flow so far.
  double augment(std::size_t source, std::size_t sink) {
    double pushed = 0;
    while (find_levels(source, sink)) {
      next_.assign(heads_.size(), 0);
      double more = 0;
      while ((more = push(source, sink, kInfinite)) > tolerance_) pushed += more;
    }
    return pushed;
  }
  /// After augment(): true on the source's side of the least cut.
  bool reached(std::size_t node) const { return levels_[node] >= 0; }

 private:
  struct Edge {
    std::size_t to;
    double left;
  };

  bool find_levels(std::size_t source, std::size_t sink) {
    levels_.assign(heads_.size(), -1);
    levels_[source] = 0;
    queue_.assign(1, source);
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      for (const std::size_t e : heads_[queue_[i]]) {
        const Edge& edge = edges_[e];
        if (edge.left <= tolerance_ || levels_[edge.to] >= 0) continue;
        levels_[edge.to] = levels_[queue_[i]] + 1;
        queue_.push_back(edge.to);
      }
    }
    return levels_[sink] >= 0;
  }

  double push(std::size_t node, std::size_t sink, double most) {
    if (node == sink) return most;
    double pushed = 0;
    for (std::size_t& i = next_[node]; i < heads_[node].size(); ++i) {
      const std::size_t e = heads_[node][i];
      Edge& edge = edges_[e];
      if (edge.left <= tolerance_ || levels_[edge.to] != levels_[node] + 1) continue;
      const double got = push(edge.to, sink, std::min(most - pushed, edge.left));
      edge.left -= got;
      edges_[e ^ 1U].left += got;
      pushed += got;
      if (most - pushed <= tolerance_) return pushed;
    }
    return pushed;
  }

  std::vector<std::vector<std::size_t>> heads_;
  std::vector<Edge> edges_;
  std::vector<int> levels_;
  std::vector<std::size_t> next_, queue_;
  double tolerance_;
};

Status check(const BoundProblem& problem) {
  if (problem.devices.size() > kBoundDevicesMax) {
    return {Code::kInvalidArgument, fmt::format("bound over {} devices (at most {})",
                                                problem.devices.size(), kBoundDevicesMax)};
  }
  for (std::size_t d = 0; d < problem.devices.size(); ++d) {
    const BoundDevice& device = problem.devices[d];
    if (!(device.rate_bytes_per_s > 0) || !(device.credit_bytes >= 0) ||
        (device.link != kNoLink && device.link >= problem.links.size())) {
      return {Code::kInvalidArgument,
              fmt::format("bound: device {} has no rate, a credit below 0 or an unknown link", d)};
    }
  }
  for (const BoundLink& link : problem.links) {
    if (!(link.rate_bytes_per_s > 0)) {
      return {Code::kInvalidArgument, "bound: a link has no rate"};
    }
  }
  const std::uint64_t known = problem.devices.size() == 64
                                  ? ~std::uint64_t{0}
                                  : (std::uint64_t{1} << problem.devices.size()) - 1;
  for (const BoundGroup& group : problem.groups) {
    if (!(group.bytes >= 0) || !std::isfinite(group.bytes) || !std::isfinite(group.release_s)) {
      return {Code::kInvalidArgument, "bound: bytes or release of a group are no numbers"};
    }
    if (group.bytes > 0 && (group.devices == 0 || (group.devices & ~known) != 0)) {
      return {Code::kInvalidArgument,
              fmt::format("bound: {:.0f} B that no known device can serve", group.bytes)};
    }
  }
  return Status::ok();
}

/// The flow problem of one BoundProblem, with the T of the last interval's end growing.
class Bound {
 public:
  explicit Bound(const BoundProblem& problem) : problem_(problem) {
    for (const BoundGroup& group : problem.groups) {
      if (group.bytes <= 0) continue;
      groups_[{group.release_s, group.devices}] += group.bytes;
      total_ += group.bytes;
    }
    for (const auto& [key, bytes] : groups_) {
      if (releases_.empty() || key.first > releases_.back()) releases_.push_back(key.first);
    }
  }

  double solve() {
    if (groups_.empty()) return 0;
    build();
    double end = releases_.back();
    double flow = 0;
    for (int cuts = 0; cuts < kCutsMax; ++cuts) {
      flow += network_->augment(kSource, kSink);
      if (flow >= total_ * (1 - 1e-10)) break;
      const double next = end_of_cut();
      // Rounding can find the same cut again; its T is the answer.
      if (!(next > end)) break;
      lengthen(next - end);
      end = next;
    }
    return end;
  }

 private:
  static constexpr std::size_t kSource = 0, kSink = 1;

  /// An edge whose capacity is rate x length of an interval.
  struct TimedEdge {
    std::size_t edge, from, to;
    double rate_bytes_per_s, fixed_bytes;
    bool last;
  };

  std::size_t device_node(std::size_t device, std::size_t interval) const {
    return 2 + groups_.size() + device * releases_.size() + interval;
  }
  std::size_t link_node(std::size_t link, std::size_t interval) const {
    return device_node(problem_.devices.size() + link, interval);
  }

  void build() {
    const std::size_t columns = problem_.devices.size() + problem_.links.size();
    network_.emplace(2 + groups_.size() + columns * releases_.size(), total_ * 1e-14);
    std::size_t node = 2;
    for (const auto& [key, bytes] : groups_) {
      group_edges_.push_back({node, bytes});
      network_->add_edge(kSource, node, bytes);
      const auto at = std::lower_bound(releases_.begin(), releases_.end(), key.first);
      const auto interval = static_cast<std::size_t>(at - releases_.begin());
      for (std::uint64_t left = key.second; left != 0; left &= left - 1) {
        const auto device = static_cast<std::size_t>(std::countr_zero(left));
        network_->add_edge(node, device_node(device, interval), kInfinite);
      }
      ++node;
    }
    for (std::size_t i = 0; i < releases_.size(); ++i) build_interval(i);
  }

  void build_interval(std::size_t i) {
    const bool last = i + 1 == releases_.size();
    for (std::size_t d = 0; d < problem_.devices.size(); ++d) {
      const BoundDevice& device = problem_.devices[d];
      const std::size_t to = device.link == kNoLink ? kSink : link_node(device.link, i);
      add_timed(device_node(d, i), to, device.rate_bytes_per_s, last ? device.credit_bytes : 0, i);
      // What was released may be read later, too.
      if (!last) network_->add_edge(device_node(d, i), device_node(d, i + 1), kInfinite);
    }
    for (std::size_t l = 0; l < problem_.links.size(); ++l) {
      add_timed(link_node(l, i), kSink, problem_.links[l].rate_bytes_per_s, 0, i);
    }
  }

  void add_timed(std::size_t from, std::size_t to, double rate, double credit, std::size_t i) {
    const bool last = i + 1 == releases_.size();
    const double fixed = credit + (last ? 0 : rate * (releases_[i + 1] - releases_[i]));
    timed_.push_back({network_->add_edge(from, to, fixed), from, to, rate, fixed, last});
  }

  void lengthen(double by_s) {
    for (const TimedEdge& timed : timed_) {
      if (timed.last) network_->grow(timed.edge, timed.rate_bytes_per_s * by_s);
    }
  }

  /// The T at which the present least cut lets its bytes through.
  double end_of_cut() const {
    double bytes = 0, fixed = 0, rate = 0;
    for (const auto& [node, group_bytes] : group_edges_) {
      if (network_->reached(node)) bytes += group_bytes;
    }
    for (const TimedEdge& timed : timed_) {
      if (!network_->reached(timed.from) || network_->reached(timed.to)) continue;
      fixed += timed.fixed_bytes;
      if (timed.last) rate += timed.rate_bytes_per_s;
    }
    return rate > 0 ? releases_.back() + (bytes - fixed) / rate : 0;
  }

  const BoundProblem& problem_;
  std::map<std::pair<double, std::uint64_t>, double> groups_;  // (release, devices) -> bytes
  std::vector<double> releases_;
  double total_ = 0;
  std::optional<FlowNetwork> network_;
  std::vector<std::pair<std::size_t, double>> group_edges_;
  std::vector<TimedEdge> timed_;
};

}  // namespace

Result<double> least_time_s(const BoundProblem& problem) {
  if (Status status = check(problem); !status.is_ok()) return failure(std::move(status));
  return Bound(problem).solve();
}

}  // namespace kvstream
