// Where blocks and steps end: each destination is reported once, holes take what is behind them.
#include <algorithm>
#include <utility>

#include "step/dispatcher_impl.hpp"

namespace kvstream {
namespace {

constexpr std::size_t kRecordsMax = 65'536;

}  // namespace

// Where does a block go that is neither read nor placed now? To the board while it has a source,
// to its end when nothing can bring it any more; else it waits.
void StepDispatcher::Impl::rest(StepState& step, std::uint32_t block, Nanos now) {
  BlockProgress& state = step.blocks[block];
  if (state.phase == BlockPhase::kEnded || state.phase == BlockPhase::kPlacing || state.direct_out)
    return;
  if (state.phase == BlockPhase::kUnread) step.board.take(block);
  state.phase = BlockPhase::kStranded;
  if (drop_behind_holes(step, block, now)) return;
  if ((state.mask & states_.live) == 0) state.mask |= std::exchange(state.spares, 0);
  const PlannedBlock& planned = step.plan.blocks[block];
  if (state.mask != 0) {
    state.phase = BlockPhase::kUnread;
    step.board.put(block, state.mask, planned.size_bytes,
                   step.is_behind(planned) ? ClaimBoard::Band::kBehind : ClaimBoard::Band::kFront);
    return;
  }
  if (step.plan.round_open || table_.entry(state.entry).reads > 0) return;
  const MissReason reason = state.failed_replicas != 0 ? MissReason::kAllFailed
                            : state.ever == 0          ? MissReason::kNotFound
                                                       : MissReason::kSourcesLost;
  finish_block(step, block, {BlockState::kMiss, reason, 0}, false, now);
}

void StepDispatcher::Impl::report(StepState& step, const Destination& to, BlockOutcome outcome,
                                  bool held, Nanos now) {
  switch (outcome.state) {
    case BlockState::kHit:
      ++counters_.hits;
      ++sources_[outcome.source].counters.hits;
      break;
    case BlockState::kMiss:
      ++counters_.misses;
      break;
    case BlockState::kLate:
      ++counters_.late;
      break;
    default:
      ++counters_.cancelled;
      break;
  }
  step.sink->on_block(to.request, to.position, outcome, held, now);
}

void StepDispatcher::Impl::finish_block(StepState& step, std::uint32_t block, BlockOutcome outcome,
                                        bool held, Nanos now) {
  const PlannedBlock& planned = step.plan.blocks[block];
  for (std::uint32_t i = 0; i < planned.count_destinations; ++i)
    report(step, step.plan.destinations[planned.first_destination + i], outcome, held, now);
  if (outcome.state == BlockState::kHit) host_.on_hit(planned.key, outcome.source);
  retire_block(step, block, outcome, now);
}

void StepDispatcher::Impl::retire_block(StepState& step, std::uint32_t block, BlockOutcome outcome,
                                        Nanos now) {
  BlockProgress& state = step.blocks[block];
  if (state.phase == BlockPhase::kUnread) {
    step.board.take(block);
    if (step.board.unread_blocks() == 0) ++hedge_epoch_;
  }
  state.phase = BlockPhase::kEnded;
  if (options_.record && outcome.state == BlockState::kHit) {
    step.record.blocks[block].hit = true;
    step.record.blocks[block].source = outcome.source;
  }
  release_holds(step, block);
  unlink_asker(step, block);
  --step.left;
  if (block < step.admitted) --step.admitted_left;
  mark(step);
  if (step.plan.round_open) {
    const PlannedBlock& planned = step.plan.blocks[block];
    for (std::uint32_t i = 0; i < planned.count_destinations; ++i) {
      const Destination& to = step.plan.destinations[planned.first_destination + i];
      if (step.open_at[to.request] == to.position) advance_open(step, to.request);
    }
  }
  if (outcome.state == BlockState::kMiss && outcome.reason != MissReason::kDeadline &&
      outcome.reason != MissReason::kBehindAHole)
    open_hole(step, block, now);
}

// A hold that a read still uses ends with that read.
void StepDispatcher::Impl::release_holds(StepState& step, std::uint32_t block) {
  const PlannedBlock& planned = step.plan.blocks[block];
  const BlockProgress& state = step.blocks[block];
  const Asker self = asker_of(slot_of_step(step), block);
  std::uint8_t in_use = 0;
  for (std::uint32_t r = table_.entry(state.entry).first_read; r != kNone;
       r = table_.read(r).next_of_entry) {
    Read& read = table_.read(r);
    if (read.owner != self) continue;
    for (std::uint8_t i = 0; i < planned.replicas.count; ++i)
      if (planned.replicas.at[i].tier == read.replica.tier &&
          planned.replicas.at[i].at == read.replica.at && (in_use >> i & 1U) == 0) {
        in_use = static_cast<std::uint8_t>(in_use | 1U << i);
        read.unhold = true;
        break;
      }
    // The step may be gone when a staged read comes in; a direct one keeps it from draining.
    if (read.kind != ReadKind::kDirect || !state.direct_out) read.owner = kNobody;
  }
  for (std::uint8_t i = 0; i < planned.replicas.count; ++i)
    if ((in_use >> i & 1U) == 0) host_.on_unhold(planned.key, planned.replicas.at[i]);
}

void StepDispatcher::Impl::unlink_asker(StepState& step, std::uint32_t block) {
  BlockProgress& state = step.blocks[block];
  KeyEntry& entry = table_.entry(state.entry);
  const Asker self = asker_of(slot_of_step(step), block);
  Asker before = kNobody;
  for (Asker at = entry.first; at != self; at = progress(at).next) before = at;
  (before == kNobody ? entry.first : progress(before).next) = state.next;
  if (entry.last == self) entry.last = before;
  state.next = kNobody;
  table_.erase_if_unused(state.entry);
}

void StepDispatcher::Impl::open_hole(StepState& step, std::uint32_t block, Nanos now) {
  const PlannedBlock& planned = step.plan.blocks[block];
  for (std::uint32_t i = 0; i < planned.count_destinations; ++i) {
    const Destination to = step.plan.destinations[planned.first_destination + i];
    const std::uint32_t end =
        std::min(step.hole_at[to.request], step.plan.requests[to.request].count_blocks);
    if (to.position >= step.hole_at[to.request]) continue;
    step.hole_at[to.request] = to.position;
    for (std::uint32_t p = to.position + 1; p < end; ++p) {
      const std::uint32_t behind = step.block_at(to.request, p);
      const BlockPhase phase = step.blocks[behind].phase;
      if (phase == BlockPhase::kUnread || phase == BlockPhase::kParked ||
          phase == BlockPhase::kStranded)
        drop_behind_holes(step, behind, now);
    }
  }
}

// Takes the destinations behind holes off a block that nobody writes; true when that ended it. The
// others move together, since a placement wants them side by side.
bool StepDispatcher::Impl::drop_behind_holes(StepState& step, std::uint32_t block, Nanos now) {
  PlannedBlock& planned = step.plan.blocks[block];
  const BlockOutcome behind{BlockState::kMiss, MissReason::kBehindAHole, 0};
  std::uint32_t kept = 0;
  std::uint32_t next_span = planned.count_destinations == 0
                                ? 0
                                : step.plan.destinations[planned.first_destination].first_span;
  for (std::uint32_t i = 0; i < planned.count_destinations; ++i) {
    Destination to = step.plan.destinations[planned.first_destination + i];
    if (to.position > step.hole_at[to.request]) {
      report(step, to, behind, false, now);
      continue;
    }
    const auto from = step.plan.spans.begin() + to.first_span;
    std::copy(from, from + to.count_spans, step.plan.spans.begin() + next_span);
    to.first_span = next_span;
    next_span += to.count_spans;
    step.plan.destinations[planned.first_destination + kept++] = to;
  }
  const bool ends = kept == 0 && planned.count_destinations > 0;
  planned.count_destinations = kept;
  if (ends) retire_block(step, block, behind, now);
  return ends;
}

void StepDispatcher::Impl::mark(StepState& step) {
  if (step.dirty) return;
  step.dirty = true;
  dirty_.push_back(slot_of_step(step));
}

// The policy's gate: the next request, or the next block, once what was let in has ended.
void StepDispatcher::Impl::admit(StepState& step, Nanos now) {
  const auto count = static_cast<std::uint32_t>(step.plan.blocks.size());
  while (step.admitted_left == 0 && step.admitted < count) {
    const std::uint32_t first = step.admitted;
    std::uint32_t end = first + 1;
    if (step.plan.gate == Gate::kRequest)
      while (end < count && step.plan.blocks[end].request == step.plan.blocks[first].request) ++end;
    for (std::uint32_t b = first; b < end; ++b)
      if (step.blocks[b].phase != BlockPhase::kEnded) ++step.admitted_left;
    step.admitted = end;
    for (std::uint32_t b = first; b < end; ++b)
      if (step.blocks[b].phase == BlockPhase::kParked) rest(step, b, now);
  }
}

// Steps end at the close of a call, when nothing walks them any more.
void StepDispatcher::Impl::settle(Nanos now) {
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    const std::uint32_t slot = dirty_[i];
    StepState& step = steps_[slot];
    step.dirty = false;
    admit(step, now);
    if (step.left == 0 && !step.ended) {
      step.ended = true;
      turns_.leave(step.seat);
      active_.erase(std::find(active_.begin(), active_.end(), slot));
      if (options_.record && records_.size() < kRecordsMax) {
        step.record.ended_at = now;
        records_.push_back(std::move(step.record));
      }
      step.sink->on_step_end(now);
    }
    if (step.ended && step.used && step.directs == 0) {
      step.sink->on_drained(now);
      step.used = false;
      step.sink.reset();
      free_slots_.push_back(slot);
    }
  }
  dirty_.clear();
}

}  // namespace kvstream
