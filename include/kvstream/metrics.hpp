// Counters of an engine. Every counter is in a sum that a test closes (DESIGN: accounts).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvstream/tier.hpp"

namespace kvstream {

struct TierStats {
  std::string name, kind;
  std::uint64_t hits = 0;  ///< blocks served to steps
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t reads = 0, writes = 0, read_errors = 0, write_errors = 0;
  std::uint64_t corrupt = 0, recycled = 0, evicted = 0, hedges = 0, overdue = 0;
  double rate_bytes_per_s = 0;
  Nanos lone_latency_ns = 0;
  std::uint64_t window_bytes = 0;
  TierReport report;
};

/// One consistent snapshot. requested = hits + misses + late + cancelled, and
/// looked_up = requested + recomputed_by_choice + never_loaded once all leases have ended.
struct EngineStats {
  std::uint64_t looked_up = 0, requested = 0;
  std::uint64_t hits = 0, misses = 0, late = 0, cancelled = 0;
  std::uint64_t recomputed_by_choice = 0, never_loaded = 0;
  std::uint64_t offered = 0, published = 0, dropped = 0;
  std::uint64_t staged_bytes = 0, direct_bytes = 0, duplicate_read_bytes = 0;
  std::uint64_t leases = 0, holds = 0, reads_in_flight = 0, writes_in_flight = 0;
  std::uint64_t catalog_blocks = 0, catalog_replicas = 0;
  std::uint64_t slabs_free = 0, slabs_all = 0;
  double verify_cpu_s = 0;
  std::vector<TierStats> tiers;
};

}  // namespace kvstream
