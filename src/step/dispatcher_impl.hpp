// Inside of StepDispatcher; included by its sources alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "step/client_turns.hpp"
#include "step/dispatcher.hpp"
#include "step/read_table.hpp"
#include "step/step_state.hpp"

namespace kvstream {

/// What the dispatcher keeps of a source.
struct SourceState {
  Tier* tier = nullptr;
  Device* device = nullptr;
  std::uint32_t alignment = 1;
  bool live = true;
  bool suspect = false;      ///< a claim is overdue: claims nothing until a read completes
  bool staged_only = false;  ///< a direct read was late
  bool can_direct = false;
  bool addressable = false;
  bool trusted = false;
  std::uint32_t slabs = 0;
  std::uint32_t oldest = kNone, newest = kNone;  ///< reads out, in order of their claims
  std::uint64_t out_bytes = 0;
  std::vector<ReadOp> batch;  ///< claimed, not taken by the tier yet
  Nanos hedge_at = 0;         ///< not looked for before, unless something ran out of unread work
  std::uint64_t hedge_epoch = 0;
  bool hedge_waits = false;  ///< a read is out that may become worth a second one
  SourceCounters counters;
};

/// The work of the dispatcher, by theme: dispatcher.cpp steps as they come and go,
/// dispatcher_claims.cpp rules 1 to 5, dispatcher_timers.cpp deadlines and rule 6,
/// dispatcher_landing.cpp completions and placing, dispatcher_reports.cpp ends and holes.
struct StepDispatcher::Impl {
  Impl(Options options, std::vector<Source> sources, BufferPool& slabs, Placer& placer,
       DispatcherHost& host);

  // Steps.
  Result<StepId> begin(StepPlan plan, std::shared_ptr<StepSink> sink, Nanos now);
  Status check(const StepPlan& plan) const;
  void index_requests(StepState& step);
  void start_blocks(StepState& step);
  void report_planned_misses(StepState& step, Nanos now);
  void cancel(StepId id, Nanos now);
  void add_replica(StepId id, const BlockKey& key, const Replica& replica, Nanos now);
  void round_ended(StepId id, Nanos now);
  void set_live(SourceId source, bool live, Nanos now);
  StepState* find_step(StepId id);
  const StepState* find_step(StepId id) const;
  std::uint32_t slot_of_step(const StepState& step) const {
    return static_cast<std::uint32_t>(step.id % steps_.size());
  }
  void advance_open(StepState& step, std::uint32_t request);
  void refile(StepState& step, std::uint32_t block);

  // Rules 1 to 5.
  enum class Issued : std::uint8_t { kRead, kJoined, kRefused };
  Nanos claims(Nanos now);
  void refresh_states();
  void refresh_queue(std::uint8_t device);
  bool claim_for(SourceId source, Nanos now, Nanos& wake);
  bool claim_from(StepState& step, SourceId source, const ClaimBoard::Ask& ask, Nanos now,
                  Nanos& wake, bool& refused);
  StepState* next_step(SourceId source);
  Issued issue(StepState& step, std::uint32_t block, SourceId source, bool hedge, Nanos now);
  ReadKind landing_of(const StepState& step, std::uint32_t block, const SourceState& source,
                      const std::byte* view) const;
  void submit_read(StepState& step, std::uint32_t block, std::uint32_t read);
  bool slab_allowed(SourceId source) const;
  void count_slab(SourceId source, int change);
  void flush(SourceId source);
  void hedge_for(SourceId source, Nanos now, Nanos& wake);
  std::uint32_t find_hedge(SourceId source, Nanos now, Nanos& next, Asker& asker);
  Asker hedge_asker(const Read& read, SourceId source);
  Nanos relook_ns(SourceId source) const;

  // Completions.
  void on_read_complete(SourceId source, const Completion& done, Nanos now);
  void on_placed(const PlaceDone& done, Nanos now);
  void read_failed(std::uint32_t read, Nanos now);
  void fail_replica(std::uint32_t entry, const Read& read, Nanos now);
  void serve(std::uint32_t entry, Nanos now);
  bool place(std::uint32_t entry, std::uint32_t read, Asker asker, Nanos now);
  Asker next_asker(const KeyEntry& entry, const Read& read);
  void placed_good(std::uint32_t read, Asker asker, Nanos now);
  void release_read(std::uint32_t read);
  void end_window_place(Read& read, bool good, Nanos now);
  void put_back(std::uint32_t entry, Nanos now);
  void retry_places(Nanos now);
  void list_read(std::uint32_t read);
  void unlist_read(std::uint32_t read);

  // Deadlines and rule 6.
  Nanos timers(Nanos now);
  void end_step_early(StepState& step, BlockState why, Nanos now);
  void scan_overdue(Nanos now);
  void overdue(std::uint32_t read, Nanos now);
  bool give_up(std::uint32_t read, Nanos now);
  void suspect(SourceId source);

  // Reports.
  void rest(StepState& step, std::uint32_t block, Nanos now);
  void finish_block(StepState& step, std::uint32_t block, BlockOutcome outcome, bool held,
                    Nanos now);
  void retire_block(StepState& step, std::uint32_t block, BlockOutcome outcome, Nanos now);
  void report(StepState& step, const Destination& to, BlockOutcome outcome, bool held, Nanos now);
  void open_hole(StepState& step, std::uint32_t block, Nanos now);
  bool drop_behind_holes(StepState& step, std::uint32_t block, Nanos now);
  void release_holds(StepState& step, std::uint32_t block);
  void unlink_asker(StepState& step, std::uint32_t block);
  void admit(StepState& step, Nanos now);
  void mark(StepState& step);
  void settle(Nanos now);
  BlockProgress& progress(Asker asker) { return steps_[slot_of(asker)].blocks[block_of(asker)]; }

  Options options_;
  std::vector<SourceState> sources_;
  std::vector<Device*> devices_;
  BufferPool& slabs_;
  Placer& placer_;
  DispatcherHost& host_;
  SourceMask all_sources_ = 0;
  SourceMask slabless_ = 0;  ///< live sources that need slabs and hold none
  SourceMask batched_ = 0;   ///< with reads that the tier has not taken
  SourceStates states_;
  ClientTurns turns_;
  std::array<std::uint32_t, kSourcesMax> unread_of_{};

  std::vector<StepState> steps_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> active_;  ///< slots of steps that have not ended, oldest first
  std::vector<std::uint32_t> dirty_;
  ReadTable table_;
  std::vector<std::uint32_t> place_queue_;  ///< entries that wait for room in the placer
  std::uint64_t next_step_ = 1, sequence_ = 0, tried_ = 0, hedge_epoch_ = 1;
  Nanos next_deadline_ = kNever, next_overdue_ = kNever;
  bool recheck_overdue_ = false;

  DispatcherCounters counters_;
  std::vector<StepRecord> records_;
  std::vector<Claim> claim_log_;
};

}  // namespace kvstream
