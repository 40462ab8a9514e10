// Deadlines, and rule 6: what is overdue for good is unread again.
#include <algorithm>

#include "step/dispatcher_impl.hpp"

namespace kvstream {

Nanos StepDispatcher::Impl::timers(Nanos now) {
  retry_places(now);
  for (Device* device : devices_) device->tick(now);
  if (now >= next_deadline_) {
    next_deadline_ = kNever;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      StepState& step = steps_[active_[i]];
      if (step.plan.deadline > now) {
        next_deadline_ = std::min(next_deadline_, step.plan.deadline);
      } else if (step.left > 0) {
        step.plan.deadline = kNever;
        end_step_early(step, BlockState::kLate, now);
      }
    }
  }
  if (now >= next_overdue_ || recheck_overdue_) scan_overdue(now);
  settle(now);
  return std::min(next_deadline_, next_overdue_);
}

// By deadline (kLate) or by cancel. What our own copy is writing ends with that copy.
void StepDispatcher::Impl::end_step_early(StepState& step, BlockState why, Nanos now) {
  for (std::uint32_t block = 0; block < step.blocks.size(); ++block) {
    BlockProgress& state = step.blocks[block];
    if (state.phase == BlockPhase::kEnded) continue;
    if (state.phase == BlockPhase::kPlacing) {
      if (state.closing != BlockState::kCancelled) state.closing = why;
      continue;
    }
    const bool held = state.direct_out;
    if (why == BlockState::kCancelled) {
      finish_block(step, block, {why, MissReason::kNone, 0}, held, now);
    } else if (held) {
      for (std::uint32_t r = table_.entry(state.entry).first_read; r != kNone;
           r = table_.read(r).next_of_entry)
        if (table_.read(r).kind == ReadKind::kDirect)
          sources_[table_.read(r).source].staged_only = true;
      finish_block(step, block, {BlockState::kLate, MissReason::kNone, 0}, true, now);
    } else {
      finish_block(step, block, {BlockState::kMiss, MissReason::kDeadline, 0}, false, now);
    }
  }
}

void StepDispatcher::Impl::scan_overdue(Nanos now) {
  recheck_overdue_ = false;
  next_overdue_ = kNever;
  for (SourceState& source : sources_)
    for (std::uint32_t r = source.oldest; r != kNone;) {
      const std::uint32_t next = table_.read(r).newer;
      if (table_.read(r).overdue_at <= now)
        overdue(r, now);
      else
        next_overdue_ = std::min(next_overdue_, table_.read(r).overdue_at);
      r = next;
    }
}

void StepDispatcher::Impl::overdue(std::uint32_t index, Nanos now) {
  Read& read = table_.read(index);
  const KeyEntry& entry = table_.entry(read.entry);
  if (entry.first == kNobody || entry.placing != kNone) return;
  if (!read.noted_late) {
    read.noted_late = true;
    ++sources_[read.source].counters.overdue;
    if (read.kind == ReadKind::kDirect) sources_[read.source].staged_only = true;
    suspect(read.source);
  }
  if (read.active) give_up(index, now);
}

// The read stays out and may still win; but others may now read the key. When nobody could, there
// is nothing to gain. A block with a direct read out stays that read's.
bool StepDispatcher::Impl::give_up(std::uint32_t index, Nanos now) {
  Read& read = table_.read(index);
  if (!read.active) return false;
  const SourceMask own = bit(read.source);
  bool gains = false;
  for (Asker asker = table_.entry(read.entry).first; asker != kNobody;
       asker = progress(asker).next) {
    const BlockProgress& state = progress(asker);
    gains = gains || (!state.direct_out && ((state.mask | state.spares) & ~own) != 0);
  }
  if (!gains) return false;
  read.active = false;
  const std::uint32_t at = read.entry;
  --table_.entry(at).active;
  ++table_.entry(at).pinned;
  for (Asker asker = table_.entry(at).first; asker != kNobody;) {
    StepState& step = steps_[slot_of(asker)];
    const std::uint32_t block = block_of(asker);
    BlockProgress& state = step.blocks[block];
    asker = state.next;
    if (state.direct_out) continue;
    state.mask &= ~own;
    state.spares &= ~own;
    if (state.phase == BlockPhase::kUnread) rest(step, block, now);
  }
  put_back(at, now);
  --table_.entry(at).pinned;
  return true;
}

// A source that stalls must not keep what the plan gave to it alone: the spares take over.
void StepDispatcher::Impl::suspect(SourceId source) {
  sources_[source].suspect = true;
  refresh_states();
  for (const std::uint32_t slot : active_) {
    StepState& step = steps_[slot];
    for (std::uint32_t block = 0; block < step.blocks.size(); ++block) {
      BlockProgress& state = step.blocks[block];
      const bool rests = state.phase == BlockPhase::kUnread || state.phase == BlockPhase::kParked;
      if (!rests || (state.mask & states_.live) != 0 || state.spares == 0) continue;
      state.mask |= state.spares;
      state.spares = 0;
      if (state.phase == BlockPhase::kUnread) refile(step, block);
    }
  }
}

}  // namespace kvstream
