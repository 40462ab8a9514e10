// Completions: bytes that arrived are placed, verified, and serve everybody who asked.
#include <algorithm>

#include "step/dispatcher_impl.hpp"

namespace kvstream {
namespace {

constexpr Nanos kLateSlack = 200 * kMillisecond;

}  // namespace

void StepDispatcher::Impl::list_read(std::uint32_t index) {
  Read& read = table_.read(index);
  SourceState& source = sources_[read.source];
  read.older = source.newest;
  (source.newest == kNone ? source.oldest : table_.read(source.newest).newer) = index;
  source.newest = index;
  source.out_bytes += read.size_bytes;
}

void StepDispatcher::Impl::unlist_read(std::uint32_t index) {
  Read& read = table_.read(index);
  SourceState& source = sources_[read.source];
  (read.older == kNone ? source.oldest : table_.read(read.older).newer) = read.newer;
  (read.newer == kNone ? source.newest : table_.read(read.newer).older) = read.older;
  source.out_bytes -= read.size_bytes;
}

void StepDispatcher::Impl::on_read_complete(SourceId from, const Completion& done, Nanos now) {
  const std::uint32_t index = table_.by_id(done.id);
  if (index == kNone || table_.read(index).source != from ||
      table_.read(index).phase != ReadPhase::kOut)
    return;
  Read& read = table_.read(index);
  SourceState& source = sources_[from];
  const bool good = done.code == Code::kOk;
  unlist_read(index);
  source.device->on_complete(Device::Kind::kRead, read.size_bytes, read.submitted, good, now);
  refresh_queue(states_.device[from]);
  source.suspect = false;
  source.hedge_at = 0;
  if (good)
    source.counters.read_bytes += read.size_bytes;
  else
    ++source.counters.errors;
  if (read.kind == ReadKind::kDirect) {
    StepState& step = steps_[slot_of(read.owner)];
    step.blocks[block_of(read.owner)].direct_out = false;
    --step.directs;
    mark(step);
    if (now > read.due + kLateSlack) source.staged_only = true;
  }
  if (options_.record && read.owner != kNobody) {
    StepState& step = steps_[slot_of(read.owner)];
    if (!step.ended)
      step.record.reads.push_back(
          {read.submitted, now, block_of(read.owner), from, read.hedge, good});
  }
  if (good) {
    read.phase = ReadPhase::kArrived;
    KeyEntry& entry = table_.entry(read.entry);
    if (!read.active) {
      read.active = true;
      ++entry.active;
    }
    if (entry.first == kNobody || entry.placing != kNone)
      counters_.duplicate_read_bytes += read.size_bytes;
    serve(read.entry, now);
  } else {
    read_failed(index, now);
  }
  settle(now);
}

void StepDispatcher::Impl::read_failed(std::uint32_t index, Nanos now) {
  const std::uint32_t at = table_.read(index).entry;
  ++table_.entry(at).pinned;
  fail_replica(at, table_.read(index), now);
  release_read(index);
  --table_.entry(at).pinned;
  serve(at, now);
}

// The replica serves nobody any more; a source is out when it has no other.
void StepDispatcher::Impl::fail_replica(std::uint32_t at, const Read& read, Nanos now) {
  for (Asker asker = table_.entry(at).first; asker != kNobody;) {
    StepState& step = steps_[slot_of(asker)];
    const std::uint32_t block = block_of(asker);
    BlockProgress& state = step.blocks[block];
    asker = state.next;
    bool other = false, hit = false;
    const auto all = step.plan.blocks[block].replicas.all();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].tier != read.replica.tier) continue;
      if (all[i].at == read.replica.at) {
        state.failed_replicas = static_cast<std::uint8_t>(state.failed_replicas | 1U << i);
        hit = true;
      } else {
        other = other || (state.failed_replicas >> i & 1U) == 0;
      }
    }
    if (!hit || other) continue;
    state.mask &= ~bit(read.source);
    state.spares &= ~bit(read.source);
    if (state.phase == BlockPhase::kUnread) rest(step, block, now);
  }
}

void StepDispatcher::Impl::release_read(std::uint32_t index) {
  Read& read = table_.read(index);
  end_window_place(read, false, 0);
  if (read.slab.data != nullptr) {
    slabs_.give(read.slab.data);
    count_slab(read.source, -1);
  }
  if (read.unhold) host_.on_unhold(table_.entry(read.entry).key, read.replica);
  table_.remove_read(index);
}

void StepDispatcher::Impl::end_window_place(Read& read, bool good, Nanos now) {
  if (!read.place_held) return;
  read.place_held = false;
  SourceState& source = sources_[read.source];
  source.out_bytes -= read.size_bytes;
  source.device->on_complete(Device::Kind::kRead, read.size_bytes, read.submitted, good,
                             std::max(now, read.submitted));
  refresh_queue(states_.device[read.source]);
}

// Who is to be served next from a read that arrived; the one that claimed it goes first.
Asker StepDispatcher::Impl::next_asker(const KeyEntry& entry, const Read& read) {
  const auto wants = [&](Asker asker) {
    const BlockProgress& state = progress(asker);
    return !state.direct_out && state.phase != BlockPhase::kEnded;
  };
  bool owner_asks = false;
  Asker first = kNobody;
  for (Asker asker = entry.first; asker != kNobody; asker = progress(asker).next) {
    if (!wants(asker)) continue;
    owner_asks = owner_asks || asker == read.owner;
    if (first == kNobody) first = asker;
  }
  if (owner_asks) return read.owner;
  // What landed in one step's memory is not there for others.
  return read.kind == ReadKind::kDirect ? kNobody : first;
}

// Places what has arrived for a key, one asker after the other; when nothing is left that could
// come in, the askers go back to their boards.
void StepDispatcher::Impl::serve(std::uint32_t at, Nanos now) {
  ++table_.entry(at).pinned;
  while (table_.entry(at).placing == kNone) {
    KeyEntry& entry = table_.entry(at);
    std::uint32_t arrived = kNone;
    for (std::uint32_t r = entry.first_read; r != kNone; r = table_.read(r).next_of_entry)
      if (table_.read(r).phase == ReadPhase::kArrived &&
          (arrived == kNone || table_.read(r).verified ||
           (!table_.read(arrived).verified &&
            table_.read(r).sequence < table_.read(arrived).sequence)))
        arrived = r;
    if (arrived == kNone) {
      put_back(at, now);
      break;
    }
    const Asker asker = next_asker(entry, table_.read(arrived));
    if (asker == kNobody) {
      release_read(arrived);
      continue;
    }
    if (!place(at, arrived, asker, now)) {
      if (!entry.queued) place_queue_.push_back(at);
      entry.queued = true;
      break;
    }
  }
  --table_.entry(at).pinned;
  table_.erase_if_unused(at);
}

bool StepDispatcher::Impl::place(std::uint32_t at, std::uint32_t index, Asker asker, Nanos now) {
  Read& read = table_.read(index);
  StepState& step = steps_[slot_of(asker)];
  const std::uint32_t block = block_of(asker);
  const PlannedBlock& planned = step.plan.blocks[block];
  const Destination* to = &step.plan.destinations[planned.first_destination];
  std::size_t count_spans = 0;
  for (std::uint32_t i = 0; i < planned.count_destinations; ++i) count_spans += to[i].count_spans;
  PlaceJob job;
  job.id = read.id;
  job.from = read.from;
  job.size_bytes = planned.size_bytes;
  job.checksum = read.replica.checksum;
  job.verify = !sources_[read.source].trusted && !read.verified;
  job.copies = planned.count_destinations;
  job.into = {step.plan.spans.data() + to->first_span, count_spans};
  const bool nothing_to_do = read.kind == ReadKind::kDirect && !job.verify;
  if (!nothing_to_do && !placer_.submit(job)) return false;
  if (step.blocks[block].phase == BlockPhase::kUnread) {
    step.board.take(block);
    if (step.board.unread_blocks() == 0) ++hedge_epoch_;
  }
  step.blocks[block].phase = BlockPhase::kPlacing;
  read.phase = ReadPhase::kPlacing;
  read.serving = asker;
  table_.entry(at).placing = index;
  if (nothing_to_do) placed_good(index, asker, now);
  return true;
}

void StepDispatcher::Impl::placed_good(std::uint32_t index, Asker asker, Nanos now) {
  Read& read = table_.read(index);
  StepState& step = steps_[slot_of(asker)];
  const std::uint32_t block = block_of(asker);
  BlockProgress& state = step.blocks[block];
  read.verified = true;
  read.phase = ReadPhase::kArrived;
  read.serving = kNobody;
  table_.entry(read.entry).placing = kNone;
  const std::uint64_t bytes =
      std::uint64_t{read.size_bytes} * step.plan.blocks[block].count_destinations;
  (read.kind == ReadKind::kDirect ? counters_.direct_bytes : counters_.staged_bytes) += bytes;
  if (read.owner != asker) ++counters_.joined;
  state.phase = BlockPhase::kOut;
  const BlockState end =
      state.closing == BlockState::kCancelled ? BlockState::kCancelled : BlockState::kHit;
  finish_block(step, block, {end, MissReason::kNone, read.source}, false, now);
}

void StepDispatcher::Impl::on_placed(const PlaceDone& done, Nanos now) {
  const std::uint32_t index = table_.by_id(done.id);
  if (index == kNone || table_.read(index).phase != ReadPhase::kPlacing) return;
  Read& read = table_.read(index);
  const std::uint32_t at = read.entry;
  const Asker asker = read.serving;
  ++table_.entry(at).pinned;
  if (read.place_held) {
    if (done.good) sources_[read.source].counters.read_bytes += read.size_bytes;
    end_window_place(read, done.good, now);
    sources_[read.source].hedge_at = 0;
  }
  if (done.good) {
    placed_good(index, asker, now);
  } else {
    StepState& step = steps_[slot_of(asker)];
    BlockProgress& state = step.blocks[block_of(asker)];
    ++sources_[read.source].counters.corrupt;
    recheck_overdue_ = true;
    table_.entry(at).placing = kNone;
    state.phase = BlockPhase::kOut;
    host_.on_mismatch(table_.entry(at).key, read.replica);
    fail_replica(at, read, now);
    if (state.closing == BlockState::kCancelled)
      finish_block(step, block_of(asker), {BlockState::kCancelled, MissReason::kNone, 0}, false,
                   now);
    else if (state.closing == BlockState::kLate)
      finish_block(step, block_of(asker), {BlockState::kMiss, MissReason::kDeadline, 0}, false,
                   now);
    release_read(index);
  }
  --table_.entry(at).pinned;
  serve(at, now);
  settle(now);
}

// Nothing has arrived and nobody hopes any more: back to the boards, or to the end.
void StepDispatcher::Impl::put_back(std::uint32_t at, Nanos now) {
  if (table_.entry(at).active > 0) return;
  ++table_.entry(at).pinned;
  for (Asker asker = table_.entry(at).first; asker != kNobody;) {
    StepState& step = steps_[slot_of(asker)];
    const std::uint32_t block = block_of(asker);
    const BlockPhase phase = step.blocks[block].phase;
    asker = step.blocks[block].next;
    if (phase == BlockPhase::kOut || phase == BlockPhase::kStranded) rest(step, block, now);
  }
  --table_.entry(at).pinned;
}

void StepDispatcher::Impl::retry_places(Nanos now) {
  for (std::size_t i = place_queue_.size(); i > 0; --i) {
    const std::uint32_t at = place_queue_.front();
    place_queue_.erase(place_queue_.begin());
    table_.entry(at).queued = false;
    serve(at, now);
    if (table_.entry(at).queued) break;
  }
}

}  // namespace kvstream
