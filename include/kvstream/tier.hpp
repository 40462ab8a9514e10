// The tier interface: where blocks rest. A tier is driven (submit, poll); it makes no thread and
// knows nothing of what keys mean or of policy. docs/add-a-tier.md walks through one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/clock.hpp"
#include "kvstream/config.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// What the dispatcher must know of a tier; nobody asks for its kind to decide anything.
struct TierTraits {
  std::string kind;       ///< "host", "nvme", "pfs", ...: for people and reports only
  std::string name;       ///< the instance, e.g. "nvme0"; unique in an engine
  std::string device_id;  ///< what it shares with other tiers and ranks: a drive, a mount
  std::uint32_t alignment_bytes = 1;  ///< of offset, length and address for direct landing
  std::uint32_t in_flight_max = 64;   ///< operations that it takes at once
  std::uint32_t io_threads = 0;       ///< BlockingTier: how many threads may be inside it
  bool direct_landing = false;        ///< bytes may be read straight into the engine's memory
  bool addressable = false;           ///< view() gives the bytes in place (host memory)
  bool persistent = false;            ///< contents outlive the process
  bool readable_without_owner = false;
  bool trusted = false;  ///< memory of our own: its bytes need no checksum when they leave
};

/// Where one block lies within a tier. The generation grows each time the slot is used again, so a
/// stale SlotRef never names other bytes.
struct SlotRef {
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  bool operator==(const SlotRef&) const = default;
};

/// `into` must stay valid, and its memory untouched by others, until the completion. The spans add
/// up to `size_bytes` rounded up to `alignment_bytes` (a tier may write that many bytes).
struct ReadOp {
  std::uint64_t id = 0;
  SlotRef at;
  std::uint32_t size_bytes = 0;
  std::span<const Span> into;
};

/// `from` has `size_bytes` rounded up to `alignment_bytes` readable bytes, aligned likewise, and
/// stays untouched until the completion. `at` came from reserve().
struct WriteOp {
  std::uint64_t id = 0;
  BlockKey key;
  SlotRef at;
  std::uint32_t size_bytes = 0;
  std::uint64_t checksum = 0;  ///< XXH3-64 of the size_bytes bytes
  const std::byte* from = nullptr;
};

/// The tier has logged the detail of an error; `code` is what the caller acts on.
struct Completion {
  std::uint64_t id = 0;
  Code code = Code::kOk;
  std::uint32_t size_bytes = 0;
};

/// News for the catalog: what recovery found, what other writers wrote or dropped, what a recheck
/// showed. All of it is a hint; a read that finds otherwise is a retry elsewhere or a miss.
struct CatalogChange {
  enum class Kind : std::uint8_t { kAdded, kRemoved, kRecycled, kBad };
  Kind kind = Kind::kAdded;
  bool own = false;  ///< this process is the slot's writer: it may evict it
  BlockKey key;
  SlotRef at;
  std::uint32_t size_bytes = 0;
  std::uint64_t checksum = 0;
};

/// What a tier says of itself; cheap, any thread.
struct TierReport {
  std::uint64_t capacity_bytes = 0;  ///< what reserve() could hand out in all, in slot bytes
  std::uint64_t used_bytes = 0;      ///< reserved or published, in slot bytes
  std::uint64_t free_bytes = 0;
  std::uint32_t sharers = 1;  ///< ranks of this node that keep the same device busy now
  std::uint64_t errors = 0;
  /// How often the logs of other writers were read to their ends; 0: it follows nobody's.
  std::uint64_t follow_rounds = 0;
  std::string mode;  ///< what it really does, e.g. "io_uring+O_DIRECT"
};

/// A place for blocks that never blocks its caller.
///
/// Owned by the engine. reserve, free, submit_*, poll, changes, next_event and view are called by
/// one thread (the progress thread); chore() by another, at the same time; report() by any.
/// Every operation that was taken completes exactly once, through poll().
class Tier {
 public:
  virtual ~Tier() = default;

  virtual const TierTraits& traits() const = 0;
  /// A free slot for a block of this size; kNoSpace when there is none (evict, then free()), and
  /// kOverloaded when one may come without evicting (a segment is being made by chore()).
  virtual Result<SlotRef> reserve(std::uint32_t size_bytes) = 0;
  /// Gives back a slot that was reserved (its write failed or never began) or published; nobody
  /// reads it any more.
  virtual void free(SlotRef at) = 0;
  /// Takes a prefix of `ops` and says how many; the rest is the caller's still.
  virtual std::size_t submit_reads(std::span<const ReadOp> ops) = 0;
  /// As submit_reads. A write completes when a crash of the process can no longer lose it.
  virtual std::size_t submit_writes(std::span<const WriteOp> ops) = 0;
  /// Fills `out` with what has completed and says how many; never waits.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  /// Readable when poll() may have something; -1 when next_event() alone tells.
  virtual int wait_fd() const = 0;
  /// When poll() should be called at the latest; kNever when wait_fd() will tell.
  virtual Nanos next_event() const = 0;
  /// The bytes in place, when traits().addressable and the slot is held; else null.
  virtual const std::byte* view(SlotRef at) const = 0;
  /// Fills `out` with news for the catalog and says how many.
  virtual std::size_t changes(std::span<CatalogChange> out) = 0;
  /// A reader found other bytes at a slot of another writer: look at the slot's newest record in
  /// chore(), and answer kRecycled or kBad through changes().
  virtual void recheck(const CatalogChange& seen) = 0;
  /// One bounded piece of blocking housekeeping: making and unlinking files, following logs.
  virtual Status chore() = 0;
  virtual TierReport report() const = 0;
};

/// A place for blocks whose calls block. The engine's adapter makes it a Tier, with
/// traits().io_threads threads inside read() and write(); reserve, free and changes are called by
/// the progress thread, chore() by another, all at the same time.
class BlockingTier {
 public:
  virtual ~BlockingTier() = default;

  virtual const TierTraits& traits() const = 0;
  virtual Result<SlotRef> reserve(std::uint32_t size_bytes) = 0;
  virtual void free(SlotRef at) = 0;
  /// Bytes read; a short read is an error.
  virtual Result<std::uint32_t> read(const ReadOp& op) = 0;
  virtual Status write(const WriteOp& op) = 0;
  virtual std::size_t changes(std::span<CatalogChange> out) = 0;
  virtual void recheck(const CatalogChange& seen) = 0;
  virtual Status chore() = 0;
  virtual TierReport report() const = 0;
};

using AnyTier = std::variant<std::unique_ptr<Tier>, std::unique_ptr<BlockingTier>>;

/// What a factory may know of the process that it makes a tier for.
struct TierContext {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t local_rank = 0;   ///< on its node
  std::uint32_t local_ranks = 1;  ///< of its node
  std::string node = "node0";
  std::string job = "job0";                   ///< one word, the same on all ranks
  std::uint64_t namespace_fingerprint = 0;    ///< of the first link of the key chain
  std::uint32_t block_bytes_max = 1U << 20U;  ///< the largest block that will ever be written
  const Clock* clock = nullptr;               ///< never null
};

/// Makes one tier. Errors are one line that says how to cure it.
using TierFactory = std::function<Result<AnyTier>(const TierSpec&, const TierContext&)>;

/// A tier for the engine to open: `make` gives the bare tier, `wrap` (may be empty) puts wrappers
/// around it after the engine has made it non-blocking.
struct TierPart {
  TierSpec spec;
  TierFactory make;
  std::function<Result<std::unique_ptr<Tier>>(std::unique_ptr<Tier>)> wrap;
};

}  // namespace kvstream
