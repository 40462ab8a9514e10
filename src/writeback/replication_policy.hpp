// Which tiers get a copy of a new block. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kvstream/block.hpp"
#include "kvstream/config.hpp"

namespace kvstream {

/// What the policy may know of a tier.
struct TargetView {
  bool in_use = true;
  bool persistent = true;
};

/// What it may know of a block.
struct NewBlock {
  BlockKey key;
  std::uint32_t size_bytes = 0;
  std::uint32_t position = 0;
};

/// The copies that a block is to get: each of `all`, and one of `any` (the first that has room).
struct WriteTargets {
  std::uint64_t all = 0;
  std::uint64_t any = 0;
};

/// Memory tiers take a copy in any case but `none`; `one` and `all` speak of persistent tiers.
class ReplicationPolicy {
 public:
  virtual ~ReplicationPolicy() = default;
  virtual WriteTargets targets(const NewBlock& block, std::span<const TargetView> tiers) = 0;
};

std::unique_ptr<ReplicationPolicy> make_replication_policy(Replication replication);

}  // namespace kvstream
