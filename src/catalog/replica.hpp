// One copy of a block, and the copies of one key.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kvstream/tier.hpp"

namespace kvstream {

/// One copy of a block.
struct Replica {
  std::uint8_t tier = 0;  ///< index in the engine's list = source id of the step layer
  bool own = true;        ///< this process may evict it
  SlotRef at;
  std::uint32_t size_bytes = 0;
  std::uint64_t checksum = 0;
};

inline constexpr std::size_t kReplicasMax = 8;

/// The replicas of one key, in order of tier.
struct ReplicaSet {
  std::array<Replica, kReplicasMax> at;
  std::uint8_t count = 0;
  std::span<const Replica> all() const { return {at.data(), count}; }
};

}  // namespace kvstream
