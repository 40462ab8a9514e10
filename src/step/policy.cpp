#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "step/plan.hpp"

namespace kvstream {
namespace {

template <class Visit>
void for_each_source(SourceMask mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<SourceId>(std::countr_zero(mask)));
}

SourceMask live_mask(std::span<const SourceView> sources) {
  SourceMask live = 0;
  for (std::size_t s = 0; s < sources.size(); ++s)
    if (sources[s].live) live |= bit(static_cast<SourceId>(s));
  return live;
}

void choose(PlannedBlock& block, SourceId source) {
  const SourceMask all = block.claimable | block.spares;
  block.claimable = bit(source);
  block.spares = all & ~bit(source);
}

SourceMask usable(const PlannedBlock& block, SourceMask live) {
  return (block.claimable | block.spares) & live;
}

void first_tier(StepPlan& plan, SourceMask live) {
  for (PlannedBlock& block : plan.blocks)
    if (const SourceMask held = usable(block, live); held != 0)
      choose(block, static_cast<SourceId>(std::countr_zero(held)));
}

/// Weighted round robin: the source that is furthest behind its part of the step's bytes.
void round_robin(StepPlan& plan, std::span<const SourceView> sources, SourceMask live) {
  std::array<double, kTiersMax> given{};
  for (PlannedBlock& block : plan.blocks) {
    int best = -1;
    double least = 0;
    for_each_source(usable(block, live), [&](SourceId source) {
      const double nominal = std::max(sources[source].nominal_rate_bytes_per_ns, 1e-9);
      const double load = (given[source] + block.size_bytes) / nominal;
      if (best < 0 || load < least) {
        best = source;
        least = load;
      }
    });
    if (best < 0) continue;
    given[static_cast<std::size_t>(best)] += block.size_bytes;
    choose(block, static_cast<SourceId>(best));
  }
}

/// Request by request to the shortest queue; what is not held there goes to the next shortest. The
/// step's own earlier requests count as queued.
void shortest_queue(StepPlan& plan, QueueMeasure measure, std::span<const SourceView> sources,
                    SourceMask live) {
  std::array<double, kTiersMax> queued{};
  for (std::size_t s = 0; s < sources.size(); ++s)
    queued[s] = static_cast<double>(sources[s].queued_bytes);
  for (std::size_t from = 0; from < plan.blocks.size();) {
    std::size_t to = from;
    double bytes = 0;
    for (; to < plan.blocks.size() && plan.blocks[to].request == plan.blocks[from].request; ++to)
      bytes += plan.blocks[to].size_bytes;
    const auto cost = [&](SourceId source) {
      if (measure == QueueMeasure::kBytes) return queued[source];
      return static_cast<double>(sources[source].latency_ns) +
             (queued[source] + bytes) / std::max(sources[source].rate_bytes_per_ns, 1e-9);
    };
    std::array<SourceId, kTiersMax> ranking{};
    const auto end = ranking.begin() + static_cast<std::ptrdiff_t>(sources.size());
    std::iota(ranking.begin(), end, SourceId{0});
    std::stable_sort(ranking.begin(), end,
                     [&](SourceId a, SourceId b) { return cost(a) < cost(b); });
    for (; from < to; ++from) {
      PlannedBlock& block = plan.blocks[from];
      const SourceMask held = usable(block, live);
      const auto best =
          std::find_if(ranking.begin(), end, [&](SourceId s) { return (held & bit(s)) != 0; });
      if (best == end) continue;
      choose(block, *best);
      queued[*best] += block.size_bytes;
    }
  }
}

}  // namespace

void apply_policy(StepPlan& plan, const Mode& mode, std::span<const SourceView> sources) {
  const SourceMask live = live_mask(sources);
  plan.gate = Gate::kNone;
  plan.adaptive = mode.policy == ReadPolicy::kCompletion;
  switch (mode.policy) {
    case ReadPolicy::kSerial:
      first_tier(plan, live);
      plan.gate = mode.serial_depth == SerialDepth::kBlock ? Gate::kBlock : Gate::kRequest;
      break;
    case ReadPolicy::kPooled:
      first_tier(plan, live);
      break;
    case ReadPolicy::kStatic:
      round_robin(plan, sources, live);
      break;
    case ReadPolicy::kShortestQueue:
      shortest_queue(plan, mode.queue_measure, sources, live);
      break;
    case ReadPolicy::kCompletion:
      break;
  }
}

}  // namespace kvstream
