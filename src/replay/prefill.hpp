// What earlier requests would have left in the tiers. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvstream/config.hpp"
#include "replay/contents.hpp"
#include "replay/trace.hpp"

namespace kvstream {

/// Who can read what a rank has written into a tier.
enum class Visibility : std::uint8_t { kRank, kNode, kJob };

struct PrefillTier {
  Visibility visibility = Visibility::kRank;
  bool persistent = true;   ///< replication speaks of these; the others take every block
  double write_weight = 1;  ///< `one` spreads blocks in proportion to it
  std::vector<std::uint64_t> slots_of_rank;  ///< how many blocks each rank may own there
};

struct PrefillProblem {
  std::span<const TraceRequest> requests;  ///< each is its rank's
  std::vector<std::uint32_t> node_of_rank;
  std::vector<PrefillTier> tiers;
  Replication replication = Replication::kOne;
};

struct PrefillAnswer {
  std::vector<std::vector<BlockPlace>> of_rank;  ///< each oldest first
  std::uint64_t distinct_blocks = 0;             ///< that the requests name
};

/// Plays the requests against LRU orders (one a tier and rank) of the given numbers of slots: a
/// request uses its longest prefix that its rank can read, and writes every block behind it. What
/// a rank uses moves to the young end of its own tiers only, since it cannot touch another
/// writer's. Time is linear in blocks.
PrefillAnswer simulate_prefill(const PrefillProblem& problem);

}  // namespace kvstream
