// The engine: one a rank. Look-ups, loads of a step, deferred saves.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/config.hpp"
#include "kvstream/metrics.hpp"
#include "kvstream/step.hpp"
#include "kvstream/tier.hpp"

namespace kvstream {

/// What close() left behind.
struct CloseReport {
  bool abandoned = false;  ///< a thread is stuck in the kernel; its memory stays mapped
  std::uint64_t slabs_abandoned = 0;
};

/// One copy of a block, as contents() lists it.
struct ContentEntry {
  BlockKey key;
  std::uint32_t size_bytes = 0;
  std::uint64_t own = 0;     ///< mask of tiers in which this rank owns a copy
  std::uint64_t others = 0;  ///< mask of tiers in which only another writer's copy is known
};

/// Owns every thread (progress, copy, I/O of blocking tiers, chores) and joins it in close().
/// All members may be called from any thread. Errors never cross as exceptions.
class Engine {
 public:
  struct Options {
    Settings settings;
    Mode mode;
    TierContext context;
  };

  /// Opens the tiers in order of preference, recovers what they hold and starts the threads.
  static Result<std::unique_ptr<Engine>> open(Options options, std::vector<TierPart> tiers);
  virtual ~Engine() = default;

  /// Memory that loads land in and saves come from; registering it lets tiers prepare it once.
  /// Memory that was not registered works too.
  virtual Status register_buffer(Span memory) = 0;
  /// The longest usable prefix of each request, with a lease; never waits, makes no system call.
  virtual std::vector<LookupAnswer> lookup(std::span<const LookupRequest> requests) = 0;
  /// Ends a lease; unknown or ended tokens are fine.
  virtual void release(LeaseToken lease) = 0;
  /// Starts the reads of a step; never waits.
  virtual Result<Ticket> load_step(const StepRequest& request) = 0;
  /// Ends a step early. After it returned ok nothing writes into the step's destinations, but
  /// those that held() names.
  virtual Status cancel(const Ticket& ticket, Nanos deadline) = 0;
  /// The destinations of a step that a device may still write into.
  virtual std::vector<Span> held(const Ticket& ticket) const = 0;
  /// The forward pass has ended: offers new blocks. Never waits; what does not fit is dropped.
  virtual SaveTicket save_step(const SaveRequest& request) = 0;
  /// An eventfd that becomes readable when a step ends or is drained and when a save is staged or
  /// done, so that an engine's own loop can sleep on it. Whoever sleeps reads it empty, then looks
  /// at its tickets. The engine's own; valid until close().
  virtual int event_fd() const = 0;

  /// Changes policy, write timing and tiers in use; takes effect for steps that begin later.
  virtual Status set_mode(const Mode& mode) = 0;
  /// What this rank knows, for snapshots of state and for reports. Slow.
  virtual std::vector<ContentEntry> contents() const = 0;
  /// Takes this rank's own copies of a key out of the tiers in the mask, once nobody reads them.
  virtual void drop(std::span<const BlockKey> keys, std::uint64_t tiers) = 0;
  /// As hits of these blocks in this order would: the last one is the last to be evicted.
  virtual void touch(std::span<const BlockKey> keys) = 0;
  /// Learns now what other writers have written (it is learned in the background anyway).
  virtual Status refresh(Nanos deadline) = 0;
  virtual EngineStats stats() const = 0;
  /// And forgets them.
  virtual std::vector<StepRecord> take_step_records() = 0;
  /// Ends all steps, lets queued writes end within the deadline, stops and joins the threads.
  virtual CloseReport close(Nanos deadline) = 0;
};

}  // namespace kvstream
