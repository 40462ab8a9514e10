// What this rank knows: key -> replicas, leases and holds on them, and whom to evict.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "catalog/eviction_order.hpp"
#include "catalog/lease_table.hpp"
#include "catalog/replica.hpp"
#include "kvstream/step.hpp"
#include "kvstream/tier.hpp"

namespace kvstream {

/// A replica and whose it is.
struct KeyedReplica {
  BlockKey key;
  Replica replica;
};

/// One that was retracted: nobody can find it any more.
using Victim = KeyedReplica;

/// Thread-safe by shards (64); no member waits for I/O, none but for_each() walks everything.
/// Bounded by Options::entries_max replicas and leases_max leases. Owned by the engine.
class Catalog {
 public:
  struct Options {
    std::uint64_t entries_max = 4'000'000;
    std::uint32_t leases_max = 65'536;
    std::uint32_t tiers = 1;
    EvictionOrderFactory order = make_lru_order;
  };
  explicit Catalog(Options options);
  ~Catalog();

  /// False when it is full, or when the same tier and slot holds this key already.
  bool publish(const BlockKey& key, const Replica& replica);
  /// Takes one replica out of sight; false when it was not known. When it is ours, its slot comes
  /// back through take_freed() after the last hold on it has ended.
  bool retract(const BlockKey& key, const Replica& replica);
  /// At most one replica a tier, own ones first, in order of tier.
  ReplicaSet find(const BlockKey& key, std::uint64_t tiers) const;

  /// Longest prefix of `keys` with a replica in one of `tiers`; leases one replica of each, an own
  /// one if there is one (leased replicas are not evicted). Ends at `expires`. When the table of
  /// leases is full the answer is 0 blocks.
  LookupAnswer lookup_and_lease(std::span<const BlockKey> keys, std::uint64_t tiers, Nanos expires);
  /// Ends a lease; says how many blocks it had (0: unknown or ended).
  std::uint32_t release(LeaseToken lease);
  /// Ends leases whose time is over; says how many blocks they had.
  std::uint64_t expire_leases(Nanos now);

  /// As find(), and holds what it returns.
  ReplicaSet find_and_hold(const BlockKey& key, std::uint64_t tiers);
  /// Any replica of the tier, held; for probes.
  std::optional<KeyedReplica> sample_and_hold(std::uint8_t tier);
  void unhold(const BlockKey& key, const Replica& replica);
  /// A hit: the block moves to the young end of its tiers.
  void touch(const BlockKey& key);

  /// Retracts up to `count` own replicas of the tier, first to leave first, none leased or held.
  std::vector<Victim> evict(std::uint8_t tier, std::uint32_t count);
  /// Own replicas that were retracted and that nobody holds any more: their slots may be freed.
  std::size_t take_freed(std::span<Victim> out);

  struct Counts {
    std::uint64_t blocks = 0, replicas = 0, leases = 0, leased_blocks = 0, holds = 0;
  };
  Counts counts() const;
  /// Visits every key with its replicas; slow, locks a shard at a time.
  void for_each(const std::function<void(const BlockKey&, const ReplicaSet&)>& visit) const;

 private:
  struct Node;
  struct Shard;
  Shard& shard_of(const BlockKey& key) const;
  std::uint32_t end_lease(const std::vector<LeasedBlock>& blocks);

  Options options_;
  std::unique_ptr<Shard[]> shards_;
  LeaseTable leases_;
  std::atomic<std::uint64_t> tick_{0};
  std::atomic<std::uint64_t> freed_waiting_{0};
};

}  // namespace kvstream
