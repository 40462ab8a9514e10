#include "catalog/catalog.hpp"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <mutex>

namespace kvstream {
namespace {

constexpr std::size_t kShards = 64;
constexpr std::uint32_t kNone = ~0U;
/// How many candidates of one shard an eviction looks at before it goes on to the next shard.
constexpr std::uint32_t kCandidatesMax = 256;

}  // namespace

/// One replica. Nodes of a key are chained; a retracted one stays in the chain, out of sight,
/// until its last hold has ended.
struct Catalog::Node {
  BlockKey key;
  Replica replica;
  std::uint32_t next = kNone;
  std::uint32_t holds = 0;
  std::uint32_t leases = 0;
  bool retracted = false;

  bool is(const Replica& other) const {
    return replica.tier == other.tier && replica.at == other.at;
  }
};

struct Catalog::Shard {
  mutable std::mutex mutex;
  absl::flat_hash_map<BlockKey, std::uint32_t> heads;
  std::vector<Node> nodes;
  std::vector<std::uint32_t> unused;
  std::vector<std::unique_ptr<EvictionOrder>> orders;  ///< one a tier
  std::vector<Victim> freed;
  std::vector<std::uint32_t> in_sight;  ///< replicas, by tier
  std::uint64_t replicas = 0;
  std::uint64_t holds = 0;

  Node* find(const BlockKey& key, const Replica& replica) {
    const auto head = heads.find(key);
    if (head == heads.end()) return nullptr;
    for (auto at = head->second; at != kNone; at = nodes[at].next) {
      if (nodes[at].is(replica)) return &nodes[at];
    }
    return nullptr;
  }
  std::uint32_t index(const Node* node) const {
    return static_cast<std::uint32_t>(node - nodes.data());
  }
  void add(const BlockKey& key, const Replica& replica, std::uint64_t tick) {
    std::uint32_t entry = 0;
    if (unused.empty()) {
      entry = static_cast<std::uint32_t>(nodes.size());
      nodes.emplace_back();
    } else {
      entry = unused.back();
      unused.pop_back();
    }
    auto [head, fresh] = heads.try_emplace(key, kNone);
    nodes[entry] = Node{key, replica, head->second, 0, 0, false};
    head->second = entry;
    ++replicas;
    ++in_sight[replica.tier];
    if (replica.own) orders[replica.tier]->on_publish(entry, tick);
  }
  /// Takes the node out of its chain for good.
  void erase(std::uint32_t entry) {
    const auto head = heads.find(nodes[entry].key);
    auto* link = &head->second;
    while (*link != entry) link = &nodes[*link].next;
    *link = nodes[entry].next;
    if (head->second == kNone) heads.erase(head);
    unused.push_back(entry);
  }
  /// Out of sight; true when nobody holds it, so that it is gone already.
  bool hide(std::uint32_t entry) {
    Node& node = nodes[entry];
    if (node.replica.own) orders[node.replica.tier]->on_retract(entry);
    node.retracted = true;
    --replicas;
    --in_sight[node.replica.tier];
    if (node.holds > 0) return false;
    erase(entry);
    return true;
  }
  /// The first of the tier that is neither leased nor held.
  std::uint32_t first_to_leave(std::uint8_t tier) const {
    auto entry = orders[tier]->first();
    for (std::uint32_t seen = 0; entry && seen < kCandidatesMax; ++seen) {
      if (nodes[*entry].holds == 0 && nodes[*entry].leases == 0) return *entry;
      entry = orders[tier]->after(*entry);
    }
    return kNone;
  }
  /// Any of the tier that is in sight, looking at `nodes_max` nodes at most.
  std::uint32_t any_of(std::uint8_t tier, std::size_t nodes_max) const {
    if (in_sight[tier] == 0) return kNone;
    if (const auto own = orders[tier]->first()) return *own;
    for (std::uint32_t i = 0; i < std::min(nodes.size(), nodes_max); ++i) {
      const auto head = heads.find(nodes[i].key);
      if (head == heads.end() || nodes[i].retracted || nodes[i].replica.tier != tier) continue;
      for (auto at = head->second; at != kNone; at = nodes[at].next) {
        if (at == i) return i;  // it is in use, not left over
      }
    }
    return kNone;
  }
  ReplicaSet collect(const BlockKey& key, std::uint64_t tiers) const {
    ReplicaSet set;
    const auto head = heads.find(key);
    if (head == heads.end()) return set;
    for (auto at = head->second; at != kNone; at = nodes[at].next) {
      const Node& node = nodes[at];
      if (node.retracted || (tiers >> node.replica.tier & 1) == 0) continue;
      insert(set, node.replica);
    }
    return set;
  }
  static void insert(ReplicaSet& set, const Replica& replica) {
    std::uint8_t at = 0;
    while (at < set.count && set.at[at].tier < replica.tier) ++at;
    if (at < set.count && set.at[at].tier == replica.tier) {
      if (replica.own) set.at[at] = replica;
      return;
    }
    if (set.count == kReplicasMax) return;
    for (auto k = set.count; k > at; --k) set.at[k] = set.at[k - 1];
    set.at[at] = replica;
    ++set.count;
  }
};

Catalog::Catalog(Options options)
    : options_(options), shards_(new Shard[kShards]), leases_(options.leases_max) {
  for (std::size_t i = 0; i < kShards; ++i) {
    for (std::uint32_t tier = 0; tier < options_.tiers; ++tier) {
      shards_[i].orders.push_back(options_.order());
      shards_[i].in_sight.push_back(0);
    }
  }
}

Catalog::~Catalog() = default;

Catalog::Shard& Catalog::shard_of(const BlockKey& key) const {
  return shards_[key.bytes[8] % kShards];
}

bool Catalog::publish(const BlockKey& key, const Replica& replica) {
  Shard& shard = shard_of(key);
  const std::lock_guard lock(shard.mutex);
  if (shard.replicas >= options_.entries_max / kShards + 1) return false;
  const Node* known = shard.find(key, replica);
  if (known != nullptr) return false;
  shard.add(key, replica, ++tick_);
  return true;
}

bool Catalog::retract(const BlockKey& key, const Replica& replica) {
  Shard& shard = shard_of(key);
  const std::lock_guard lock(shard.mutex);
  const Node* node = shard.find(key, replica);
  if (node == nullptr || node->retracted) return false;
  const Victim gone{key, node->replica};
  if (shard.hide(shard.index(node)) && gone.replica.own) {
    shard.freed.push_back(gone);
    ++freed_waiting_;
  }
  return true;
}

ReplicaSet Catalog::find(const BlockKey& key, std::uint64_t tiers) const {
  const Shard& shard = shard_of(key);
  const std::lock_guard lock(shard.mutex);
  return shard.collect(key, tiers);
}

ReplicaSet Catalog::find_and_hold(const BlockKey& key, std::uint64_t tiers) {
  Shard& shard = shard_of(key);
  const std::lock_guard lock(shard.mutex);
  const auto set = shard.collect(key, tiers);
  for (const auto& replica : set.all()) ++shard.find(key, replica)->holds;
  shard.holds += set.count;
  return set;
}

std::optional<KeyedReplica> Catalog::sample_and_hold(std::uint8_t tier) {
  for (std::size_t i = 0; i < kShards; ++i) {
    Shard& shard = shards_[i];
    const std::lock_guard lock(shard.mutex);
    const auto entry = shard.any_of(tier, kCandidatesMax);
    if (entry == kNone) continue;
    ++shard.nodes[entry].holds;
    ++shard.holds;
    return KeyedReplica{shard.nodes[entry].key, shard.nodes[entry].replica};
  }
  return std::nullopt;
}

void Catalog::unhold(const BlockKey& key, const Replica& replica) {
  Shard& shard = shard_of(key);
  const std::lock_guard lock(shard.mutex);
  Node* node = shard.find(key, replica);
  if (node == nullptr || node->holds == 0) return;
  --node->holds;
  --shard.holds;
  if (!node->retracted || node->holds > 0) return;
  if (node->replica.own) {
    shard.freed.push_back({key, node->replica});
    ++freed_waiting_;
  }
  shard.erase(shard.index(node));
}

void Catalog::touch(const BlockKey& key) {
  Shard& shard = shard_of(key);
  const std::lock_guard lock(shard.mutex);
  const auto head = shard.heads.find(key);
  if (head == shard.heads.end()) return;
  const auto tick = ++tick_;
  for (auto at = head->second; at != kNone; at = shard.nodes[at].next) {
    const Node& node = shard.nodes[at];
    if (node.replica.own && !node.retracted) shard.orders[node.replica.tier]->on_use(at, tick);
  }
}

LookupAnswer Catalog::lookup_and_lease(std::span<const BlockKey> keys, std::uint64_t tiers,
                                       Nanos expires) {
  std::vector<LeasedBlock> leased;
  if (leases_.full()) return {};
  for (const auto& key : keys) {
    Shard& shard = shard_of(key);
    const std::lock_guard lock(shard.mutex);
    const auto set = shard.collect(key, tiers);
    if (set.count == 0) break;
    const auto all = set.all();
    const auto own = std::find_if(all.begin(), all.end(), [](const auto& r) { return r.own; });
    const Replica& chosen = own == all.end() ? all.front() : *own;
    ++shard.find(key, chosen)->leases;
    leased.push_back({key, chosen.tier, chosen.at});
  }
  LookupAnswer answer;
  if (leased.empty()) return answer;
  answer.blocks = static_cast<std::uint32_t>(leased.size());
  answer.lease = leases_.add(std::move(leased), expires);
  return answer;
}

std::uint32_t Catalog::end_lease(const std::vector<LeasedBlock>& blocks) {
  for (const auto& block : blocks) {
    Shard& shard = shard_of(block.key);
    const std::lock_guard lock(shard.mutex);
    Replica replica;
    replica.tier = block.tier;
    replica.at = block.at;
    Node* node = shard.find(block.key, replica);
    if (node != nullptr && node->leases > 0) --node->leases;
  }
  return static_cast<std::uint32_t>(blocks.size());
}

std::uint32_t Catalog::release(LeaseToken lease) {
  const auto blocks = leases_.take(lease);
  return blocks ? end_lease(*blocks) : 0;
}

std::uint64_t Catalog::expire_leases(Nanos now) {
  std::uint64_t count = 0;
  while (const auto blocks = leases_.take_expired(now)) count += end_lease(*blocks);
  return count;
}

std::vector<Victim> Catalog::evict(std::uint8_t tier, std::uint32_t count) {
  std::vector<Victim> victims;
  while (victims.size() < count) {
    Shard* from = nullptr;
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t i = 0; i < kShards; ++i) {  // whose oldest is the oldest of all?
      const std::lock_guard lock(shards_[i].mutex);
      const auto entry = shards_[i].first_to_leave(tier);
      if (entry == kNone) continue;
      const auto rank = shards_[i].orders[tier]->rank(entry);
      if (rank < least) {
        least = rank;
        from = &shards_[i];
      }
    }
    if (from == nullptr) break;
    const std::lock_guard lock(from->mutex);
    const auto entry = from->first_to_leave(tier);
    if (entry == kNone) continue;  // it was leased or held meanwhile
    victims.push_back({from->nodes[entry].key, from->nodes[entry].replica});
    from->hide(entry);
  }
  return victims;
}

std::size_t Catalog::take_freed(std::span<Victim> out) {
  std::size_t count = 0;
  if (freed_waiting_.load(std::memory_order_relaxed) == 0) return count;
  for (std::size_t i = 0; i < kShards && count < out.size(); ++i) {
    const std::lock_guard lock(shards_[i].mutex);
    auto& freed = shards_[i].freed;
    while (!freed.empty() && count < out.size()) {
      out[count++] = freed.back();
      freed.pop_back();
    }
  }
  freed_waiting_ -= count;
  return count;
}

Catalog::Counts Catalog::counts() const {
  Counts counts;
  for (std::size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].mutex);
    counts.blocks += shards_[i].heads.size();
    counts.replicas += shards_[i].replicas;
    counts.holds += shards_[i].holds;
  }
  counts.leases = leases_.count();
  counts.leased_blocks = leases_.count_blocks();
  return counts;
}

void Catalog::for_each(const std::function<void(const BlockKey&, const ReplicaSet&)>& visit) const {
  for (std::size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].mutex);
    for (const auto& [key, head] : shards_[i].heads) {
      const auto set = shards_[i].collect(key, ~std::uint64_t{0});
      if (set.count > 0) visit(key, set);
    }
  }
}

}  // namespace kvstream
