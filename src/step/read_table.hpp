// The keys that the boards of a rank want, who asks for each, and the reads that are out for it.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "catalog/catalog.hpp"
#include "kvstream/block.hpp"
#include "step/plan.hpp"

namespace kvstream {

inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// A block of a step's plan: step slot in the high half, block in the low.
using Asker = std::uint64_t;
inline constexpr Asker kNobody = ~Asker{0};
inline constexpr Asker asker_of(std::uint32_t slot, std::uint32_t block) {
  return (Asker{slot} << 32U) | block;
}
inline constexpr std::uint32_t slot_of(Asker asker) {
  return static_cast<std::uint32_t>(asker >> 32U);
}
inline constexpr std::uint32_t block_of(Asker asker) { return static_cast<std::uint32_t>(asker); }

enum class ReadKind : std::uint8_t {
  kStaged,  ///< into a slab
  kDirect,  ///< into the destination
  kView,    ///< none: the tier's own memory is placed from
};
enum class ReadPhase : std::uint8_t { kOut, kArrived, kPlacing };

/// One read of one replica.
struct Read {
  std::uint64_t id = 0;  ///< index below, generation above; 0 = free
  std::uint64_t sequence = 0;
  std::uint32_t entry = kNone;
  std::uint32_t next_of_entry = kNone;
  std::uint32_t older = kNone, newer = kNone;  ///< of its source, while it is out
  Asker owner = kNobody;                       ///< the block whose hold it uses
  Asker serving = kNobody;                     ///< the block being placed
  Replica replica;
  SourceId source = 0;
  ReadKind kind = ReadKind::kStaged;
  ReadPhase phase = ReadPhase::kOut;
  bool active = true;  ///< hoped for: while one is, nobody else claims the key
  bool hedge = false;
  bool verified = false;
  bool unhold = false;  ///< the owner has ended: the hold ends with the read
  bool noted_late = false;
  bool place_held = false;  ///< kView: its place in the window
  std::uint32_t size_bytes = 0;
  Span slab;
  const std::byte* from = nullptr;
  Nanos submitted = 0, due = 0, overdue_at = 0;
};

/// A key that somebody wants or that is still being read.
struct KeyEntry {
  BlockKey key;
  Asker first = kNobody, last = kNobody;  ///< who asks, in order
  std::uint32_t first_read = kNone;
  std::uint32_t reads = 0;   ///< out, arrived or placing
  std::uint32_t active = 0;  ///< of those
  std::uint32_t placing = kNone;
  std::uint32_t pinned = 0;  ///< being walked: not erased
  bool queued = false;       ///< waits for room in the placer
};

/// Owned by the dispatcher; one thread. Bounded by the blocks of the steps under way and by what
/// the tiers hold in flight. Entries and reads are used again; at steady state nothing allocates
/// but the hash table when it grows.
class ReadTable {
 public:
  void reserve(std::size_t keys) { index_.reserve(index_.size() + keys); }
  std::uint32_t find(const BlockKey& key) const;
  std::uint32_t entry_for(const BlockKey& key);
  KeyEntry& entry(std::uint32_t index) { return entries_[index]; }
  /// Forgets an entry that nobody asks for, reads or walks.
  void erase_if_unused(std::uint32_t index);

  std::uint32_t add_read(std::uint32_t entry);
  void remove_read(std::uint32_t index);
  Read& read(std::uint32_t index) { return reads_[index]; }
  /// kNone when the id names no read that is under way.
  std::uint32_t by_id(std::uint64_t id) const;
  std::uint64_t count_reads() const { return count_reads_; }
  std::size_t count_entries() const { return index_.size(); }

 private:
  absl::flat_hash_map<BlockKey, std::uint32_t> index_;
  std::vector<KeyEntry> entries_;
  std::vector<std::uint32_t> free_entries_;
  std::deque<Read> reads_;  ///< addresses stay: tiers hold pointers to slab spans
  std::vector<std::uint32_t> free_reads_;
  std::uint64_t count_reads_ = 0;
  std::uint32_t generation_ = 0;
};

}  // namespace kvstream
