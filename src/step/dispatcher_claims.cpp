// Rules 1 to 5: who reads what next, and where it lands.
#include <algorithm>
#include <bit>
#include <cmath>

#include "step/dispatcher_impl.hpp"

namespace kvstream {
namespace {

/// Smaller changes of a rate are not worth working out the sums of the sets again.
constexpr double kRateStep = 0.01;
constexpr Nanos kRelookMax = 50 * kMillisecond;
constexpr Nanos kOverdueMin = 200 * kMillisecond;
constexpr double kExpectationMax = 8;  ///< times what the undecayed rate gives
constexpr std::uint32_t kClaimMax = 64;
constexpr std::size_t kClaimLogMax = 1U << 20U;
/// A refused submission or an empty pool is looked at again after this, if nothing happens before.
constexpr Nanos kRetryNs = kMillisecond;

}  // namespace

void StepDispatcher::Impl::refresh_states() {
  SourceMask live = 0;
  bool changed = false;
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const SourceState& source = sources_[s];
    if (source.live && !source.suspect) live |= bit(static_cast<SourceId>(s));
    const double rate = std::max(source.device->rate_bytes_per_ns(), 1e-12);
    if (std::abs(rate - states_.rate[s]) > kRateStep * states_.rate[s]) {
      states_.rate[s] = rate;
      changed = true;
    }
    states_.latency_ns[s] = static_cast<double>(source.device->access_latency_ns());
    states_.queued_bytes[s] = static_cast<double>(source.device->bytes_in_flight());
  }
  if (live != states_.live) changed = true;
  states_.live = live;
  if (changed) ++states_.version;
}

void StepDispatcher::Impl::refresh_queue(std::uint8_t device) {
  const auto queued = static_cast<double>(devices_[device]->bytes_in_flight());
  for (std::size_t s = 0; s < sources_.size(); ++s)
    if (states_.device[s] == device) states_.queued_bytes[s] = queued;
}

Nanos StepDispatcher::Impl::relook_ns(SourceId source) const {
  const double two_blocks =
      2.0 * sources_[source].device->options().block_bytes / states_.rate[source];
  return static_cast<Nanos>(std::min(two_blocks, static_cast<double>(kRelookMax))) + 1;
}

Nanos StepDispatcher::Impl::claims(Nanos now) {
  Nanos wake = kNever;
  retry_places(now);
  refresh_states();
  const auto count = static_cast<SourceId>(sources_.size());
  for (SourceId s = 0; batched_ != 0 && s < count; ++s) flush(s);
  for (bool progressed = true; progressed;) {
    progressed = false;
    for (SourceId s = 0; s < count; ++s) progressed = claim_for(s, now, wake) || progressed;
  }
  for (SourceId s = 0; s < count; ++s) hedge_for(s, now, wake);
  std::uint64_t waiting = 0;
  for (SourceId s = 0; s < count; ++s) {
    flush(s);
    if ((batched_ & bit(s)) != 0) wake = std::min(wake, now + kRetryNs);
    if (unread_of_[s] > 0) waiting |= std::uint64_t{1} << states_.device[s];
  }
  for (std::size_t d = 0; d < devices_.size(); ++d)
    devices_[d]->set_demand((waiting >> d & 1U) != 0);
  if (!place_queue_.empty()) wake = std::min(wake, now + kRetryNs);
  settle(now);
  return std::min(wake, next_overdue_);
}

// The client whose turn it is; of its steps least left first, aged by the time of submission. Steps
// where this turn found nothing are out.
StepState* StepDispatcher::Impl::next_step(SourceId source) {
  StepState* best = nullptr;
  double least = 0;
  std::uint64_t turn = 0;
  const bool contested = turns_.contested();
  for (const std::uint32_t slot : active_) {
    StepState& step = steps_[slot];
    if (step.tried == tried_ || step.board.unread_for(source) == 0) continue;
    if (best != nullptr || active_.size() > 1) {
      const std::uint64_t tag = contested ? turns_.tag(step.seat, source) : 0;
      if (best != nullptr && tag > turn) continue;
      const double score =
          step.board.remaining_ns(states_) + options_.ageing * static_cast<double>(step.submitted);
      if (best != nullptr && tag == turn && score >= least) continue;
      least = score;
      turn = tag;
    }
    best = &step;
  }
  return best;
}

bool StepDispatcher::Impl::claim_for(SourceId s, Nanos now, Nanos& wake) {
  SourceState& source = sources_[s];
  if (unread_of_[s] == 0 || !source.live || source.suspect || source.batch.size() >= kClaimMax)
    return false;
  const std::uint32_t places = source.device->free_places();
  if (places == 0) return false;
  ClaimBoard::Ask ask;
  ask.source = s;
  ask.blocks_max = std::min({std::max(options_.claim_blocks, 1U), places, kClaimMax});
  if (!source.addressable && !slab_allowed(s)) {
    // Only what lands direct can go on now.
    ++counters_.waits_for_slab;
    if (table_.count_reads() == 0) wake = std::min(wake, now + kRetryNs);
    if (!source.can_direct || source.staged_only) return false;
    ask.alone_only = true;
  }
  for (const ClaimBoard::Band band : {ClaimBoard::Band::kFront, ClaimBoard::Band::kBehind}) {
    ask.band = band;
    ++tried_;
    while (StepState* step = next_step(s)) {
      ask.adaptive = step->plan.adaptive;
      bool refused = false;
      if (claim_from(*step, s, ask, now, wake, refused)) return true;
      if (refused) return false;
      step->tried = tried_;
    }
  }
  return false;
}

// True when blocks left the board. A claim that cannot have all its slabs shrinks.
bool StepDispatcher::Impl::claim_from(StepState& step, SourceId source, const ClaimBoard::Ask& ask,
                                      Nanos now, Nanos& wake, bool& refused) {
  std::array<std::uint32_t, kClaimMax> blocks;
  const ClaimBoard::Claimed claimed = step.board.claim(ask, states_, blocks);
  if (claimed.declined) wake = std::min(wake, now + relook_ns(source));
  bool any = false;
  for (std::uint32_t i = 0; i < claimed.count; ++i) step.blocks[blocks[i]].phase = BlockPhase::kOut;
  for (std::uint32_t i = 0; i < claimed.count; ++i) {
    if (refused) {
      rest(step, blocks[i], now);
      continue;
    }
    if (issue(step, blocks[i], source, false, now) != Issued::kRefused) {
      any = true;
      continue;
    }
    refused = true;
    rest(step, blocks[i], now);
  }
  if (any && step.board.unread_blocks() == 0) ++hedge_epoch_;
  return any;
}

bool StepDispatcher::Impl::slab_allowed(SourceId s) const {
  const SourceState& source = sources_[s];
  const std::uint32_t free = slabs_.free_count();
  if (free == 0) return false;
  if (source.slabs == 0) return true;
  if (source.slabs >= std::max(1U, slabs_.count() / 2)) return false;
  return free > static_cast<std::uint32_t>(std::popcount(slabless_ & ~bit(s)));
}

void StepDispatcher::Impl::count_slab(SourceId s, int change) {
  SourceState& source = sources_[s];
  source.slabs = static_cast<std::uint32_t>(static_cast<int>(source.slabs) + change);
  slabless_ &= ~bit(s);
  if (source.live && !source.addressable && source.slabs == 0) slabless_ |= bit(s);
}

ReadKind StepDispatcher::Impl::landing_of(const StepState& step, std::uint32_t block,
                                          const SourceState& source, const std::byte* view) const {
  if (view != nullptr) return ReadKind::kView;
  const PlannedBlock& planned = step.plan.blocks[block];
  const BlockProgress& state = step.blocks[block];
  if (!source.can_direct || source.staged_only || step.plan.round_open ||
      planned.count_destinations != 1 || planned.size_bytes % source.alignment != 0)
    return ReadKind::kStaged;
  if (options_.landing != Landing::kDirect && !std::has_single_bit(state.ever))
    return ReadKind::kStaged;
  const Destination& to = step.plan.destinations[planned.first_destination];
  for (std::uint32_t i = 0; i < to.count_spans; ++i) {
    const Span& span = step.plan.spans[to.first_span + i];
    if (reinterpret_cast<std::uintptr_t>(span.data) % source.alignment != 0 ||
        span.size_bytes % source.alignment != 0)
      return ReadKind::kStaged;
  }
  return ReadKind::kDirect;
}

StepDispatcher::Impl::Issued StepDispatcher::Impl::issue(StepState& step, std::uint32_t block,
                                                         SourceId s, bool hedge, Nanos now) {
  const PlannedBlock& planned = step.plan.blocks[block];
  BlockProgress& state = step.blocks[block];
  KeyEntry& entry = table_.entry(state.entry);
  if (!hedge && entry.active > 0) return Issued::kJoined;  // waits, and takes no place
  const auto all = planned.replicas.all();
  std::size_t chosen = 0;
  while (chosen < all.size() && (all[chosen].tier != s || (state.failed_replicas >> chosen & 1U) ||
                                 all[chosen].size_bytes != planned.size_bytes))
    ++chosen;
  if (chosen == all.size()) {
    state.mask &= ~bit(s);
    return Issued::kRefused;
  }
  SourceState& source = sources_[s];
  const std::byte* view = source.addressable ? source.tier->view(all[chosen].at) : nullptr;
  ReadKind kind = landing_of(step, block, source, view);
  const bool others_want = entry.reads > 0 || entry.first != entry.last;
  if (kind == ReadKind::kDirect && (hedge || others_want)) kind = ReadKind::kStaged;
  std::byte* slab = nullptr;
  if (kind == ReadKind::kStaged) {
    slab = slab_allowed(s) ? slabs_.take() : nullptr;
    if (slab == nullptr) {
      ++counters_.waits_for_slab;
      return Issued::kRefused;
    }
    count_slab(s, 1);
  }
  if (!hedge && turns_.contested()) turns_.charge(step.seat, s, planned.size_bytes);
  const std::uint32_t index = table_.add_read(state.entry);
  Read& read = table_.read(index);
  read.sequence = ++sequence_;
  read.owner = asker_of(slot_of_step(step), block);
  read.replica = all[chosen];
  read.source = s;
  read.kind = kind;
  read.hedge = hedge;
  read.size_bytes = planned.size_bytes;
  read.slab = {slab, slab == nullptr ? 0
                                     : (std::size_t{read.size_bytes} + source.alignment - 1) /
                                           source.alignment * source.alignment};
  read.from = kind == ReadKind::kView ? view : slab;
  read.submitted = now;
  const double expected = states_.finish_ns(s, read.size_bytes);
  const double cap =
      kExpectationMax * (states_.latency_ns[s] + (states_.queued_bytes[s] + read.size_bytes) /
                                                     source.device->best_rate_bytes_per_ns());
  const auto expect = static_cast<Nanos>(std::min({expected, cap, 1e15}));
  read.due = now + expect;
  read.overdue_at = read.due + std::max(4 * expect, kOverdueMin);
  ++source.counters.reads;
  if (hedge) ++source.counters.hedges;
  source.device->on_submit(Device::Kind::kRead, read.size_bytes, now);
  refresh_queue(states_.device[s]);
  if (options_.record && claim_log_.size() < kClaimLogMax)
    claim_log_.push_back({step.id, block, s, hedge});
  submit_read(step, block, index);
  return Issued::kRead;
}

void StepDispatcher::Impl::submit_read(StepState& step, std::uint32_t block, std::uint32_t index) {
  Read& read = table_.read(index);
  SourceState& source = sources_[read.source];
  if (read.kind == ReadKind::kView) {
    read.phase = ReadPhase::kArrived;
    read.place_held = true;
    source.out_bytes += read.size_bytes;
    serve(read.entry, read.submitted);
    return;
  }
  list_read(index);
  next_overdue_ = std::min(next_overdue_, read.overdue_at);
  ReadOp op;
  op.id = read.id;
  op.at = read.replica.at;
  op.size_bytes = read.size_bytes;
  op.into = {&read.slab, 1};
  if (read.kind == ReadKind::kDirect) {
    const Destination& to = step.plan.destinations[step.plan.blocks[block].first_destination];
    op.into = {step.plan.spans.data() + to.first_span, to.count_spans};
    step.blocks[block].direct_out = true;
    ++step.directs;
  }
  source.batch.push_back(op);
  batched_ |= bit(read.source);
}

// What the tier does not take stays claimed, and is offered again next turn.
void StepDispatcher::Impl::flush(SourceId s) {
  SourceState& source = sources_[s];
  if ((batched_ & bit(s)) == 0) return;
  const std::size_t taken = source.tier->submit_reads(source.batch);
  source.batch.erase(source.batch.begin(),
                     source.batch.begin() + static_cast<std::ptrdiff_t>(taken));
  if (source.batch.empty()) batched_ &= ~bit(s);
}

// Whose wait a second read would shorten: an asker that may use the source.
Asker StepDispatcher::Impl::hedge_asker(const Read& read, SourceId source) {
  const KeyEntry& entry = table_.entry(read.entry);
  if (!read.active || read.kind != ReadKind::kStaged || entry.active != 1 || entry.placing != kNone)
    return kNobody;
  for (Asker asker = entry.first; asker != kNobody; asker = progress(asker).next) {
    const BlockProgress& state = progress(asker);
    if ((state.mask & bit(source)) != 0 && !state.direct_out &&
        steps_[slot_of(asker)].plan.adaptive)
      return asker;
  }
  return kNobody;
}

// Rule 5: the read, last claimed first, that its owner will end later than twice our own finish,
// or that is older than twice what was to be expected.
std::uint32_t StepDispatcher::Impl::find_hedge(SourceId s, Nanos now, Nanos& next, Asker& asker) {
  std::uint32_t best = kNone;
  for (SourceId owner = 0; owner < sources_.size(); ++owner) {
    const SourceState& other = sources_[owner];
    if (owner == s || other.newest == kNone) continue;
    const Nanos p99 = other.device->p99_ns();
    auto ahead = static_cast<double>(other.out_bytes);
    for (std::uint32_t r = other.newest; r != kNone; r = table_.read(r).older) {
      const Read& read = table_.read(r);
      const double finish = ahead / states_.rate[owner];
      ahead -= read.size_bytes;
      if (best != kNone && table_.read(best).sequence > read.sequence) break;
      const Asker wants = hedge_asker(read, s);
      if (wants == kNobody) continue;
      const Nanos old = read.submitted + 2 * std::max(read.due - read.submitted, p99) + 1;
      if (finish > 2 * states_.finish_ns(s, read.size_bytes) || now >= old) {
        best = r;
        asker = wants;
        break;
      }
      next = std::min(next, old);
    }
  }
  return best;
}

void StepDispatcher::Impl::hedge_for(SourceId s, Nanos now, Nanos& wake) {
  SourceState& source = sources_[s];
  if (unread_of_[s] > 0 || !options_.hedge || !source.live || source.suspect) return;
  std::uint32_t places = source.device->free_places();
  if (places == 0) return;
  if (now < source.hedge_at && source.hedge_epoch == hedge_epoch_) {
    if (source.hedge_waits) wake = std::min(wake, source.hedge_at);
    return;
  }
  Nanos next = kNever;
  for (; places > 0; --places) {
    Asker asker = kNobody;
    const std::uint32_t read = find_hedge(s, now, next, asker);
    if (read == kNone) break;
    StepState& step = steps_[slot_of(asker)];
    if (issue(step, block_of(asker), s, true, now) != Issued::kRead) break;
    next = kNever;
  }
  source.hedge_epoch = hedge_epoch_;
  source.hedge_at = std::min(next, now + relook_ns(s));
  source.hedge_waits = next != kNever;
  if (source.hedge_waits) wake = std::min(wake, source.hedge_at);
}

}  // namespace kvstream
