// What the dispatcher keeps of one step under way.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "step/claim_board.hpp"
#include "step/dispatcher.hpp"
#include "step/read_table.hpp"

namespace kvstream {

/// Where a block stands.
enum class BlockPhase : std::uint8_t {
  kParked,    ///< behind the policy's gate
  kUnread,    ///< on the board
  kOut,       ///< a read of its key is out, its own or another asker's
  kPlacing,   ///< bytes are on their way into its destinations, by our own copy
  kStranded,  ///< no source is left, but a read or the directory round is still out
  kEnded,     ///< reported
};

struct BlockProgress {
  std::uint32_t entry = kNone;
  Asker next = kNobody;              ///< of the same key
  SourceMask mask = 0;               ///< who may claim it
  SourceMask spares = 0;             ///< who may when nobody of `mask` is left
  SourceMask ever = 0;               ///< who ever could: more than one means never direct
  std::uint8_t failed_replicas = 0;  ///< a bit for each of PlannedBlock::replicas
  BlockPhase phase = BlockPhase::kParked;
  bool direct_out = false;                    ///< a device may write into its destination
  BlockState closing = BlockState::kPending;  ///< ends so when the copy under way is done
};

/// Owned by the dispatcher, used again for later steps so that its arrays keep their memory.
struct StepState {
  StepId id = 0;
  bool used = false, ended = false, dirty = false;
  StepPlan plan;
  std::vector<BlockProgress> blocks;
  ClaimBoard board;
  std::shared_ptr<StepSink> sink;
  Nanos submitted = 0;
  std::uint32_t seat = 0;      ///< of its client in ClientTurns
  std::uint32_t left = 0;      ///< blocks that have not ended
  std::uint32_t directs = 0;   ///< direct reads out
  std::uint32_t admitted = 0;  ///< blocks before this one have passed the gate
  std::uint32_t admitted_left = 0;
  std::uint64_t tried = 0;  ///< stamp of the last claim that found nothing here

  std::vector<std::uint32_t> request_first;   ///< where a request's row begins in request_blocks
  std::vector<std::uint32_t> request_blocks;  ///< position in request -> block
  std::vector<std::uint32_t> hole_at;         ///< first final miss of each request
  std::vector<std::uint32_t> open_at;         ///< first position whose source is still asked for

  StepRecord record;

  bool is_behind(const PlannedBlock& block) const {
    if (!plan.round_open) return false;
    for (std::uint32_t i = 0; i < block.count_destinations; ++i) {
      const Destination& to = plan.destinations[block.first_destination + i];
      if (to.position <= open_at[to.request]) return false;
    }
    return true;
  }
  std::uint32_t block_at(std::uint32_t request, std::uint32_t position) const {
    return request_blocks[request_first[request] + position];
  }
};

}  // namespace kvstream
