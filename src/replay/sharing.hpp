// How much of the prompts earlier prompts have had already; lists that share less. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "kvstream/status.hpp"
#include "replay/trace.hpp"
#include "replay/workload.hpp"

namespace kvstream {

/// Share of all prompt tokens that lie in blocks whose key an earlier request of the list has. It
/// is what a cache without bounds would hit; 0 for an empty list.
double measure_sharing(std::span<const TraceRequest> requests, const BlockShape& shape);

struct CutOptions {
  double target = 0;         ///< the sharing that is wanted
  double tolerance = 0.002;  ///< missed by more: an error
  std::uint32_t block_tokens = 512;
  Tail tail = Tail::kKeep;
  std::uint64_t seed = 1;
};

/// The same list with less sharing: lengths, outputs, arrivals and conversations stay. Each request
/// draws a point in its prompt, behind which all tokens are fresh; one factor, found by bisection,
/// scales all points until measure_sharing() gives the target. Errors: the list shares less than
/// the target as it is; it is too short to come near enough.
Result<Workload> cut_sharing(Workload workload, const CutOptions& options);

}  // namespace kvstream
