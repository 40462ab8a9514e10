// What the tiers hold when a side of a run starts.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "replay/contents.hpp"
#include "replay/prefill.hpp"
#include "replay/replay.hpp"

namespace kvstream {

/// Owned by the replay; called by all ranks together, outside measured time.
class StartContents {
 public:
  /// `mine`: this rank's requests, keys of shard 0. All of it outlives this.
  StartContents(const ReplayOptions& options, const ReplayParts& parts,
                std::span<const TraceRequest> mine);

  /// Fills the tiers as ReplayOptions::prefill says, and remembers what is there as the state that
  /// put_back() leads to.
  Status fill();
  /// Drops what a side wrote and writes again what it evicted, at the devices' full speed.
  Status put_back();

  /// At the start each block was in every tier.
  bool copies_everywhere() const { return copies_everywhere_; }
  /// {requests, distinct_blocks, blocks, bytes, copies_missing, copies_left_over}; null before.
  const nlohmann::json& report() const { return report_; }

 private:
  Result<PrefillAnswer> simulate();
  std::vector<BlockPlace> hold_all() const;
  /// The same blocks for every shard, each under keys of its own.
  void want(const std::vector<BlockPlace>& places);
  void keep_what_is_there();
  PutOptions put_options(const char* what) const;

  const ReplayOptions& options_;
  const ReplayParts& parts_;
  Group& group_;
  std::span<const TraceRequest> mine_;
  std::vector<std::vector<BlockPlace>> wanted_;  ///< by shard
  bool copies_everywhere_ = false;
  nlohmann::json report_ = nullptr;
};

}  // namespace kvstream
