// Steps: what an engine asks for and what it gets.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// Names a lease from any process of the node. All zero = none.
struct LeaseToken {
  std::array<std::uint64_t, 2> words{};
  bool operator==(const LeaseToken&) const = default;
  explicit operator bool() const { return words[0] != 0 || words[1] != 0; }
};

/// One request's keys, in prefix order.
struct LookupRequest {
  std::span<const BlockKey> keys;
};

/// `blocks` leading blocks can be loaded as long as the lease lives. `pending`: ask again (a
/// directory answer is still out); never the case while all tiers are local.
struct LookupAnswer {
  std::uint32_t blocks = 0;
  bool pending = false;
  LeaseToken lease;
};

/// One block to load. The spans of `into` add up to size_bytes.
struct BlockRequest {
  BlockKey key;
  std::uint32_t size_bytes = 0;
  std::span<const Span> into;
};

/// The blocks that one request wants, in prefix order: block i is useless without 0..i-1.
struct LoadRequest {
  std::span<const BlockRequest> blocks;
  LeaseToken lease;  ///< of the look-up; turned into holds
};

/// The arrays are copied before load_step() returns; the destination memory must stay until each
/// block is reported, and for those that held() names (late, cancelled) until drained().
struct StepRequest {
  std::span<const LoadRequest> requests;
  Nanos deadline = 0;  ///< absolute, on the engine's clock; 0 = now + Settings::step_deadline_ns
  std::uint32_t client = 0;  ///< of at most 64: their steps take turns at each source, by bytes
};

enum class BlockState : std::uint8_t { kPending, kHit, kMiss, kLate, kCancelled };
enum class MissReason : std::uint8_t {
  kNone,
  kNotFound,     ///< no tier holds it
  kBehindAHole,  ///< an earlier block of the request is missing
  kAllFailed,    ///< every source failed or was corrupt
  kDeadline,     ///< a staged block past the deadline
  kSourcesLost,  ///< evicted or retracted before a hold was got
};

struct BlockOutcome {
  BlockState state = BlockState::kPending;
  MissReason reason = MissReason::kNone;
  std::uint8_t source = 0;  ///< tier index of a hit
};

struct RequestResult {
  std::uint32_t usable_blocks = 0;  ///< leading blocks that are hits
  Nanos ready_at = 0;               ///< when the last of its blocks was reported
  std::vector<BlockOutcome> blocks;
};

struct StepResult {
  Nanos submitted_at = 0;
  Nanos ended_at = 0;
  std::vector<RequestResult> requests;
};

/// A step under way. Any thread. Kept alive by whoever holds the pointer.
class StepTicket {
 public:
  virtual ~StepTicket() = default;
  virtual bool done() const = 0;
  virtual bool request_ready(std::size_t request) const = 0;
  /// True when done in time. Sleeps.
  virtual bool wait_until(Nanos deadline) const = 0;
  /// Valid once done().
  virtual const StepResult& result() const = 0;
  /// No device or thread can write into the step's destinations any more, late ones included.
  virtual bool drained() const = 0;
};
using Ticket = std::shared_ptr<const StepTicket>;

/// One new block. The spans of `from` add up to size_bytes and stay untouched until `staged`.
struct SaveBlock {
  BlockKey key;
  std::uint32_t size_bytes = 0;
  std::span<const ConstSpan> from;
  std::uint32_t position = 0;  ///< index of the block in its prefix
};

/// Saves of one step, after its forward pass.
struct SaveRequest {
  std::span<const SaveBlock> blocks;
  std::uint64_t tiers = 0;  ///< a mask of tier indices that each get a copy; 0 = by the policy
};

struct SaveCounts {
  std::uint64_t offered = 0, staged = 0, published = 0, dropped = 0;
};

/// Saves under way. Any thread.
class SaveTicketState {
 public:
  virtual ~SaveTicketState() = default;
  virtual SaveCounts counts() const = 0;
  /// At least one copy of the block (its index in the request) is published. False until then, and
  /// for ever when it was dropped.
  virtual bool published(std::size_t block) const = 0;
  /// Every block was copied or dropped: the engine's memory may be used again. Sleeps.
  virtual bool wait_staged(Nanos deadline) const = 0;
  /// Every block was published or dropped. Sleeps.
  virtual bool wait_done(Nanos deadline) const = 0;
};
using SaveTicket = std::shared_ptr<const SaveTicketState>;

/// What the bound needs to know of a step (Settings::record_steps).
struct StepRecord {
  struct Block {
    std::uint64_t key64 = 0;
    std::uint64_t sources = 0;  ///< mask of tier indices that could serve it
    std::uint32_t size_bytes = 0;
    std::uint8_t source = 0;  ///< that did
    bool hit = false;
  };
  /// One read as it happened, for the timeline.
  struct Read {
    Nanos submitted_at = 0, ended_at = 0;
    std::uint32_t block = 0;
    std::uint8_t source = 0;
    bool hedge = false, good = false;
  };
  Nanos released_at = 0, ended_at = 0;
  std::vector<Block> blocks;
  std::vector<Read> reads;
};

}  // namespace kvstream
