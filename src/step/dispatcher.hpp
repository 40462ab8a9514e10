// The loop of a rank's read steps: boards, windows, retries, hedges, deadlines; here and only here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "kvstream/step.hpp"
#include "kvstream/tier.hpp"
#include "memory/buffer_pool.hpp"
#include "step/placer.hpp"
#include "step/plan.hpp"

namespace kvstream {

using StepId = std::uint64_t;

/// Hears what becomes of a step; called on the progress thread, must not call back.
class StepSink {
 public:
  virtual ~StepSink() = default;
  /// Each block of each request exactly once. `held`: a device may still write into it.
  virtual void on_block(std::uint32_t request, std::uint32_t position, BlockOutcome outcome,
                        bool held, Nanos now) = 0;
  /// All blocks of all requests were reported.
  virtual void on_step_end(Nanos now) = 0;
  /// No device or copy can write into any destination of the step any more.
  virtual void on_drained(Nanos now) = 0;
};

/// What the dispatcher asks of the rest of the engine; called on the progress thread.
class DispatcherHost {
 public:
  virtual ~DispatcherHost() = default;
  /// A hold that the plan took has ended.
  virtual void on_unhold(const BlockKey& key, const Replica& replica) = 0;
  /// The bytes at a replica did not match: own and held = bad at once; another's = recheck.
  virtual void on_mismatch(const BlockKey& key, const Replica& replica) = 0;
  /// Good bytes of a block are in memory (for promotion and second copies); `served` is the tier.
  virtual void on_hit(const BlockKey& key, SourceId served) = 0;
};

struct SourceCounters {
  std::uint64_t hits = 0, reads = 0, read_bytes = 0, errors = 0, corrupt = 0, hedges = 0,
                overdue = 0;
};
struct DispatcherCounters {
  std::uint64_t requested = 0, hits = 0, misses = 0, late = 0, cancelled = 0;
  std::uint64_t staged_bytes = 0, direct_bytes = 0, duplicate_read_bytes = 0;
  std::uint64_t waits_for_slab = 0, joined = 0;
};

/// Owned by the engine; every member is called by the progress thread. Bounded by the pool, the
/// devices' windows and Options. Deterministic: the same calls with the same times make the same
/// claims (claim_log).
class StepDispatcher {
 public:
  struct Options {
    Landing landing = Landing::kAuto;
    bool hedge = true;
    std::uint32_t claim_blocks = 1;
    std::uint32_t steps_max = 1024;
    double ageing = 0.05;
    bool record = false;  ///< keep StepRecords and the claim log, both bounded
  };
  struct Source {
    Tier* tier = nullptr;
    Device* device = nullptr;
  };

  StepDispatcher(Options options, std::vector<Source> sources, BufferPool& slabs, Placer& placer,
                 DispatcherHost& host);
  ~StepDispatcher();

  /// kOverloaded beyond steps_max. The sink stays valid until on_drained. Misses of the plan are
  /// reported before it returns.
  Result<StepId> begin(StepPlan plan, std::shared_ptr<StepSink> sink, Nanos now);
  void cancel(StepId step, Nanos now);
  std::vector<Span> held(StepId step) const;
  void set_claim_blocks(std::uint32_t count);

  /// A late source for a block, from the directory round; the replica is held.
  void add_replica(StepId step, const BlockKey& key, const Replica& replica, Nanos now);
  void round_ended(StepId step, Nanos now);
  /// A source serves nothing any more (a peer died, a tier was taken out); and back.
  void set_live(SourceId source, bool live, Nanos now);

  /// The turn: poll the tiers and hand their completions in, then timers, then claims.
  /// Ids of reads have bits 62 and 63 clear; the tier's other completions are not handed in.
  void on_read_complete(SourceId source, const Completion& done, Nanos now);
  void on_placed(const PlaceDone& done, Nanos now);
  Nanos timers(Nanos now);
  Nanos claims(Nanos now);

  bool reads_wait(SourceId source) const;  ///< unread blocks exist that it can serve
  bool idle() const;                       ///< no step, no read out
  std::uint64_t reads_in_flight() const;
  SourceCounters counters(SourceId source) const;
  DispatcherCounters counters() const;
  SourceView view(SourceId source) const;
  std::vector<StepRecord> take_records();
  /// (step, block, source) of each claim since the last call, for tests of determinism.
  struct Claim {
    StepId step;
    std::uint32_t block;
    SourceId source;
    bool hedge;
  };
  std::vector<Claim> take_claim_log();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvstream
