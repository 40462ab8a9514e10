// Who leaves a tier first: the seam for policies other than LRU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace kvstream {

/// The order of one tier's own replicas within one shard of the catalog. Entries are small
/// numbers that the catalog gives; ticks grow with time over all shards. Not thread-safe: the
/// shard's lock guards it. Memory is bounded by the largest entry.
class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  virtual void on_publish(std::uint32_t entry, std::uint64_t tick) = 0;
  virtual void on_use(std::uint32_t entry, std::uint64_t tick) = 0;
  virtual void on_retract(std::uint32_t entry) = 0;
  /// The first to leave, and the one that leaves after `entry`.
  virtual std::optional<std::uint32_t> first() const = 0;
  virtual std::optional<std::uint32_t> after(std::uint32_t entry) const = 0;
  /// Lower leaves earlier; comparable between shards.
  virtual std::uint64_t rank(std::uint32_t entry) const = 0;
};

using EvictionOrderFactory = std::unique_ptr<EvictionOrder> (*)();

/// Least recently used.
std::unique_ptr<EvictionOrder> make_lru_order();

}  // namespace kvstream
