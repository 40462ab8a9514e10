// Which rank serves which request. Pure: every rank computes the same from the same list.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replay/trace.hpp"

namespace kvstream {

enum class Router : std::uint8_t {
  kRoundRobin,
  kPrefix,  ///< the rank that had the longest prefix of the prompt last, unless it is overloaded
  kLeastLoaded  ///< the rank with the least estimated outstanding tokens
};

struct RouterOptions {
  Router router = Router::kRoundRobin;
  /// kPrefix leaves a rank whose outstanding tokens exceed `overload_factor` times the least by
  /// more than `overload_requests` mean requests: then the least loaded takes over.
  double overload_factor = 1.5;
  double overload_requests = 2.0;
};

/// The rank of each request. Outstanding tokens are an estimate: a request adds its prompt and
/// output to its rank, and each rank works them off at the list's mean rate (all tokens over the
/// time between first and last arrival, over the ranks; without arrivals a mean request over the
/// ranks each place of the list). Among equals the lowest rank wins.
std::vector<std::uint32_t> route(std::span<const TraceRequest> requests, std::uint32_t ranks,
                                 const RouterOptions& options);

}  // namespace kvstream
