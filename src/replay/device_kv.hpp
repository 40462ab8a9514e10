// The engine's KV cache on the device: pages that sequences hold, and blocks found by key.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

enum class PrefixCache : std::uint8_t { kOff, kOn };

/// A pool of device pages of 16 tokens with a prefix cache over it.
/// A sequence holds whole blocks, which others may share, and loose pages of its own. A block that
/// nobody holds stays findable until an allocation needs its pages: least recently freed first.
/// Owned by a Scheduler; one thread. Bounded by its capacity.
class DeviceKv {
 public:
  static constexpr std::uint32_t kPageTokens = 16;

  struct Options {
    std::uint64_t capacity_tokens = 0;  ///< rounded down to pages
    std::uint32_t block_tokens = 512;   ///< a multiple of 16
    PrefixCache prefix_cache = PrefixCache::kOn;
  };

  /// What one sequence holds. Made empty; ended by release().
  struct Hold {
    /// One a leading block of the prompt: a slot of the pool, or kLoose (its pages are loose).
    std::vector<std::uint32_t> blocks;
    std::uint64_t loose_pages = 0;
    std::uint64_t shared_pages = 0;  ///< of `blocks` that are not kLoose
    std::uint64_t pages() const { return loose_pages + shared_pages; }
  };
  static constexpr std::uint32_t kLoose = 0xffff'ffff;

  static Result<DeviceKv> open(const Options& options);

  static std::uint64_t pages(std::uint64_t tokens) {
    return (tokens + kPageTokens - 1) / kPageTokens;
  }
  std::uint64_t capacity_pages() const { return capacity_pages_; }
  /// Pages without content and pages of blocks that nobody holds.
  std::uint64_t free_pages() const { return empty_pages_ + idle_pages_; }
  std::uint64_t used_pages() const { return capacity_pages_ - free_pages(); }
  std::uint64_t evicted_blocks() const { return evicted_blocks_; }

  /// How many leading keys are findable. They must name full blocks.
  std::uint32_t find(std::span<const BlockKey> keys) const;
  /// Pages that sharing these findable blocks would take out of free_pages().
  std::uint64_t idle_pages_of(std::span<const BlockKey> keys) const;
  /// Adds findable blocks to an empty hold.
  void share(Hold& hold, std::span<const BlockKey> keys);
  /// Lets the hold have pages for `tokens` in all; evicts for them. False, and nothing changed,
  /// where they are not to be had. Never shrinks.
  [[nodiscard]] bool grow(Hold& hold, std::uint64_t tokens);
  /// The hold's next block (after hold.blocks) is full, in loose pages: findable from now on,
  /// unless another block of that key is.
  void publish(Hold& hold, const BlockKey& key);
  /// The hold's blocks from `first` on are not what they were said to be: no longer findable.
  /// Their pages stay with the hold where nobody else shares them.
  void retract(Hold& hold, std::uint32_t first);
  /// Gives all back: loose pages are empty at once, blocks idle, the tail first.
  void release(Hold& hold);

 private:
  struct Slot {
    BlockKey key;
    std::uint32_t holders = 0;
    std::uint32_t older = kLoose;  ///< neighbours among the idle
    std::uint32_t newer = kLoose;
    bool findable = false;
  };

  explicit DeviceKv(const Options& options);
  std::uint32_t take_slot();
  void link_idle(std::uint32_t slot);
  void unlink_idle(std::uint32_t slot);
  void evict_oldest();

  Options options_;
  std::uint64_t block_pages_ = 0;
  std::uint64_t capacity_pages_ = 0;
  std::uint64_t empty_pages_ = 0;
  std::uint64_t idle_pages_ = 0;
  std::uint64_t evicted_blocks_ = 0;
  std::uint32_t oldest_ = kLoose;
  std::uint32_t newest_ = kLoose;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> unused_slots_;
  absl::flat_hash_map<BlockKey, std::uint32_t> findable_;
};

}  // namespace kvstream
