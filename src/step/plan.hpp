// A step's plan: per block the sources that can serve it. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "catalog/catalog.hpp"
#include "kvstream/config.hpp"
#include "kvstream/step.hpp"

namespace kvstream {

using SourceId = std::uint8_t;
using SourceMask = std::uint64_t;
inline constexpr SourceMask bit(SourceId source) { return SourceMask{1} << source; }
inline constexpr std::size_t kSourcesPerBlockMax = 4;
inline constexpr std::size_t kSourceSetsMax = 64;

/// One place that a block is wanted at.
struct Destination {
  std::uint32_t request = 0;
  std::uint32_t position = 0;    ///< of the block in its request
  std::uint32_t first_span = 0;  ///< in StepPlan::spans
  std::uint32_t count_spans = 0;
};

/// One read of the step, whoever asked for it.
struct PlannedBlock {
  BlockKey key;
  std::uint32_t size_bytes = 0;
  std::uint32_t order = 0;    ///< earliest request first: rank among all blocks of the step
  std::uint32_t request = 0;  ///< the earliest that wants it
  SourceMask claimable = 0;   ///< who may claim it now (all that hold it; one for fixed policies)
  SourceMask spares = 0;      ///< who holds it besides; for retries
  ReplicaSet replicas;        ///< held
  std::uint32_t first_destination = 0;
  std::uint32_t count_destinations = 0;
};

/// Which blocks may be claimed before others have been reported.
enum class Gate : std::uint8_t { kNone, kRequest, kBlock };

struct StepPlan {
  struct Request {
    std::uint32_t count_blocks = 0;
    std::uint32_t first_miss = 0;  ///< blocks from here on are misses already; = count when none
    MissReason miss_reason = MissReason::kNone;
  };
  std::vector<PlannedBlock> blocks;  ///< in order
  std::vector<Destination> destinations;
  std::vector<Span> spans;
  std::vector<Request> requests;
  Gate gate = Gate::kNone;
  Nanos deadline = kNever;
  std::uint32_t client = 0;  ///< whose turn its claims use up
  bool adaptive = true;      ///< completion: tail rule and hedges apply
  bool round_open = false;   ///< a directory round may still add sources
};

/// What the pure functions may know of a source.
struct SourceView {
  double rate_bytes_per_ns = 1;
  double nominal_rate_bytes_per_ns = 1;  ///< for `static`
  Nanos latency_ns = 0;
  std::uint64_t queued_bytes = 0;  ///< claimed and not completed, all steps
  bool live = true;
};

/// Finds the replicas of a key and holds them; the engine's catalog, or a test's table.
class ReplicaFinder {
 public:
  virtual ~ReplicaFinder() = default;
  virtual ReplicaSet find_and_hold(const BlockKey& key) = 0;
};

/// PURE but for `finder`. Cuts each request at its first hole; a key that is wanted several times
/// becomes one read with several destinations. Errors: spans that do not add up, sizes of one key
/// that differ, more than kSpansMax spans.
Result<StepPlan> plan_step(const StepRequest& request, ReplicaFinder& finder);

/// PURE. Turns "who holds it" into "who may claim it" for a read policy: completion leaves all,
/// the others choose one source a block, and keep the rest as spares.
void apply_policy(StepPlan& plan, const Mode& mode, std::span<const SourceView> sources);

}  // namespace kvstream
