// Puts an engine's tiers into a given state, outside any measured time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kvstream/engine.hpp"
#include "ranks/group.hpp"

namespace kvstream {

/// A block and the tiers in which this rank owns a copy of it.
struct BlockPlace {
  BlockKey key;
  std::uint32_t size_bytes = 0;
  std::uint64_t tiers = 0;  ///< mask of tier indices
  bool operator==(const BlockPlace&) const = default;
};

/// What this rank owns now, in order of key.
std::vector<BlockPlace> own_contents(const Engine& engine);

struct PutOptions {
  std::uint32_t block_bytes_max = 0;
  std::uint64_t queue_bytes = 0;  ///< what the engine's write queue takes before it drops
  Nanos timeout_ns = 600 * kSecond;
  std::uint32_t rounds_max = 4;  ///< how often what did not get a place is offered again
  const Clock* clock = nullptr;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  ///< blocks; may be empty
};

struct PutReport {
  std::uint64_t dropped = 0;   ///< copies that were taken out
  std::uint64_t written = 0;   ///< copies that were put in
  std::uint64_t missing = 0;   ///< copies that are wanted and not there in the end
  std::uint64_t leftover = 0;  ///< copies that are there in the end and not wanted
  bool exact() const { return missing == 0 && leftover == 0; }
};

/// Takes out what is not in `wanted` and writes what is missing, oldest first in the order of
/// `wanted`, payloads made from the keys, through save_step. Called by all ranks together: nobody
/// writes before all have taken out, and everyone knows that. Nothing else may use the engine
/// meanwhile. Bounded by PutOptions.
Result<PutReport> put_contents(Engine& engine, Group& group, std::span<const BlockPlace> wanted,
                               const PutOptions& options);

/// Waits until no read and no write is in flight and no lease is left; false at the deadline.
bool wait_at_rest(const Engine& engine, const Clock& clock, Nanos deadline);

/// A hash of the set of keys that the ranks own in any tier of their engines. The same on all
/// ranks.
Result<std::string> hash_of_keys(Group& group, std::span<Engine* const> engines, Nanos timeout);

}  // namespace kvstream
