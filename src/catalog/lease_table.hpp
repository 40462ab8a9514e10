// Leases: taken by a look-up, end by time.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "catalog/replica.hpp"
#include "kvstream/block.hpp"
#include "kvstream/step.hpp"

namespace kvstream {

/// One leased replica.
struct LeasedBlock {
  BlockKey key;
  std::uint8_t tier = 0;
  SlotRef at;
};

/// token -> what it leases. Any thread; one lock, which only look-ups and the ends of leases take
/// (no read waits for it). Bounded by `leases_max`. Tokens are random, so that another process
/// can neither guess nor mistake one.
class LeaseTable {
 public:
  explicit LeaseTable(std::uint32_t leases_max);

  /// A fresh token; none when the table is full.
  LeaseToken add(std::vector<LeasedBlock> blocks, Nanos expires);
  /// Takes a lease out; nothing when unknown or ended.
  std::optional<std::vector<LeasedBlock>> take(LeaseToken token);
  /// Takes one lease out whose time is over.
  std::optional<std::vector<LeasedBlock>> take_expired(Nanos now);
  bool full() const;
  std::uint64_t count() const;
  std::uint64_t count_blocks() const;

 private:
  struct Lease {
    Nanos expires = 0;
    std::vector<LeasedBlock> blocks;
  };
  struct Expiry {
    Nanos at;
    LeaseToken token;
  };
  std::optional<std::vector<LeasedBlock>> take_locked(LeaseToken token);

  const std::uint32_t leases_max_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  absl::flat_hash_map<std::uint64_t, std::pair<std::uint64_t, Lease>> leases_;
  std::deque<Expiry> expiries_;  ///< in order of time: all leases of an engine live equally long
  std::uint64_t blocks_ = 0;
};

}  // namespace kvstream
