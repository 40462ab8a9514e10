#include "step/dispatcher.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "step/dispatcher_impl.hpp"

namespace kvstream {

StepDispatcher::Impl::Impl(Options options, std::vector<Source> sources, BufferPool& slabs,
                           Placer& placer, DispatcherHost& host)
    : options_(options),
      slabs_(slabs),
      placer_(placer),
      host_(host),
      turns_(std::min(sources.size(), kSourcesMax)) {
  options_.steps_max = std::max<std::uint32_t>(options_.steps_max, 1);
  steps_.resize(options_.steps_max);
  for (std::uint32_t slot = options_.steps_max; slot > 0; --slot) free_slots_.push_back(slot - 1);
  sources.resize(std::min(sources.size(), kSourcesMax));
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SourceState& source = sources_.emplace_back();
    source.tier = sources[i].tier;
    source.device = sources[i].device;
    const TierTraits& traits = source.tier->traits();
    source.alignment = std::max<std::uint32_t>(traits.alignment_bytes, 1);
    source.addressable = traits.addressable;
    source.trusted = traits.trusted;
    source.can_direct = traits.direct_landing && options_.landing != Landing::kStaged;
    source.batch.reserve(64);
    all_sources_ |= bit(static_cast<SourceId>(i));
    auto at = std::find(devices_.begin(), devices_.end(), source.device);
    states_.device[i] = static_cast<std::uint8_t>(at - devices_.begin());
    if (at == devices_.end()) devices_.push_back(source.device);
    count_slab(static_cast<SourceId>(i), 0);
  }
  states_.live = all_sources_;
  refresh_states();
}

Status StepDispatcher::Impl::check(const StepPlan& plan) const {
  if (free_slots_.empty())
    return {Code::kOverloaded, "failed to begin a step (" + std::to_string(steps_.size()) +
                                   " are under way, the most at a time); try later"};
  std::uint64_t alignment = 1;
  for (const SourceState& source : sources_)
    alignment = std::max<std::uint64_t>(alignment, source.alignment);
  for (const PlannedBlock& block : plan.blocks)
    if ((block.size_bytes + alignment - 1) / alignment * alignment > slabs_.slab_bytes())
      return {Code::kInvalidArgument,
              "failed to begin a step (a block of " + std::to_string(block.size_bytes) +
                  " B does not fit into a slab of " + std::to_string(slabs_.slab_bytes()) +
                  " B); raise block_bytes_max"};
  return Status::ok();
}

Result<StepId> StepDispatcher::Impl::begin(StepPlan plan, std::shared_ptr<StepSink> sink,
                                           Nanos now) {
  if (Status status = check(plan); !status.is_ok()) {
    for (const PlannedBlock& block : plan.blocks)
      for (const Replica& replica : block.replicas.all()) host_.on_unhold(block.key, replica);
    return failure(std::move(status));
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  StepState& step = steps_[slot];
  step.id = next_step_++ * steps_.size() + slot;
  step.used = true;
  step.ended = step.dirty = false;
  step.plan = std::move(plan);
  step.sink = std::move(sink);
  step.submitted = now;
  step.seat = turns_.enter(step.plan.client);
  step.left = static_cast<std::uint32_t>(step.plan.blocks.size());
  step.directs = step.admitted = step.admitted_left = 0;
  step.tried = 0;
  active_.push_back(slot);
  next_deadline_ = std::min(next_deadline_, step.plan.deadline);
  index_requests(step);
  start_blocks(step);
  report_planned_misses(step, now);
  if (options_.record) {
    step.record = StepRecord{};
    step.record.released_at = now;
    step.record.blocks.reserve(step.plan.blocks.size());
    for (std::uint32_t b = 0; b < step.plan.blocks.size(); ++b)
      step.record.blocks.push_back({step.plan.blocks[b].key.low64(), step.blocks[b].ever,
                                    step.plan.blocks[b].size_bytes, 0, false});
  }
  if (step.plan.gate == Gate::kNone) {
    step.admitted = step.admitted_left = step.left;
    for (std::uint32_t b = 0; b < step.plan.blocks.size(); ++b) rest(step, b, now);
  }
  const StepId id = step.id;
  mark(step);
  settle(now);
  return id;
}

void StepDispatcher::Impl::index_requests(StepState& step) {
  const StepPlan& plan = step.plan;
  step.request_first.clear();
  step.hole_at.clear();
  std::uint32_t next = 0;
  for (const StepPlan::Request& request : plan.requests) {
    step.request_first.push_back(next);
    step.hole_at.push_back(request.first_miss);
    next += std::min(request.first_miss, request.count_blocks);
    counters_.requested += request.count_blocks;
  }
  step.request_blocks.assign(next, kNone);
  for (std::uint32_t b = 0; b < plan.blocks.size(); ++b)
    for (std::uint32_t i = 0; i < plan.blocks[b].count_destinations; ++i) {
      const Destination& to = plan.destinations[plan.blocks[b].first_destination + i];
      step.request_blocks[step.request_first[to.request] + to.position] = b;
    }
}

void StepDispatcher::Impl::start_blocks(StepState& step) {
  const StepPlan& plan = step.plan;
  const std::uint32_t slot = slot_of_step(step);
  step.blocks.assign(plan.blocks.size(), BlockProgress{});
  SourceMask sources = plan.round_open ? all_sources_ : 0;
  table_.reserve(plan.blocks.size());
  for (std::uint32_t b = 0; b < plan.blocks.size(); ++b) {
    const PlannedBlock& block = plan.blocks[b];
    BlockProgress& state = step.blocks[b];
    state.ever = (block.claimable | block.spares) & all_sources_;
    state.mask = block.claimable & states_.live;
    state.spares = block.spares & states_.live;
    // A source that is only suspected may come back; one that was taken out does not count.
    for (std::size_t s = 0; s < sources_.size(); ++s)
      if (sources_[s].live && sources_[s].suspect) {
        const SourceMask own = bit(static_cast<SourceId>(s));
        if (plan.adaptive || (block.spares & states_.live) == 0)
          state.mask |= block.claimable & own;
        state.spares |= block.spares & own;
      }
    sources |= state.ever;
    state.entry = table_.entry_for(block.key);
    KeyEntry& entry = table_.entry(state.entry);
    if (entry.reads > 0) recheck_overdue_ = true;
    const Asker asker = asker_of(slot, b);
    if (entry.first == kNobody)
      entry.first = asker;
    else
      progress(entry.last).next = asker;
    entry.last = asker;
  }
  step.board.reset(static_cast<std::uint32_t>(plan.blocks.size()), sources, unread_of_.data());
  step.open_at.assign(plan.requests.size(), kNone);
  if (plan.round_open)
    for (std::uint32_t r = 0; r < plan.requests.size(); ++r) {
      step.open_at[r] = 0;
      advance_open(step, r);
    }
}

void StepDispatcher::Impl::report_planned_misses(StepState& step, Nanos now) {
  for (std::uint32_t r = 0; r < step.plan.requests.size(); ++r) {
    const StepPlan::Request& request = step.plan.requests[r];
    for (std::uint32_t p = request.first_miss; p < request.count_blocks; ++p) {
      const MissReason reason =
          p == request.first_miss ? request.miss_reason : MissReason::kBehindAHole;
      report(step, {r, p, 0, 0}, {BlockState::kMiss, reason, 0}, false, now);
    }
  }
}

// Moves the first open question of a request on; what is no longer behind it goes to the front.
void StepDispatcher::Impl::advance_open(StepState& step, std::uint32_t request) {
  std::uint32_t& open = step.open_at[request];
  const std::uint32_t end =
      std::min(step.plan.requests[request].first_miss, step.plan.requests[request].count_blocks);
  const std::uint32_t from = open;
  while (open < end) {
    const BlockProgress& state = step.blocks[step.block_at(request, open)];
    if (state.phase != BlockPhase::kEnded && state.ever == 0) break;
    ++open;
  }
  for (std::uint32_t p = from; p <= open && p < end; ++p) {
    const std::uint32_t block = step.block_at(request, p);
    if (step.blocks[block].phase == BlockPhase::kUnread) refile(step, block);
  }
}

void StepDispatcher::Impl::refile(StepState& step, std::uint32_t block) {
  const PlannedBlock& planned = step.plan.blocks[block];
  step.board.take(block);
  step.board.put(block, step.blocks[block].mask, planned.size_bytes,
                 step.is_behind(planned) ? ClaimBoard::Band::kBehind : ClaimBoard::Band::kFront);
}

StepState* StepDispatcher::Impl::find_step(StepId id) {
  StepState& step = steps_[id % steps_.size()];
  return step.used && step.id == id ? &step : nullptr;
}

const StepState* StepDispatcher::Impl::find_step(StepId id) const {
  const StepState& step = steps_[id % steps_.size()];
  return step.used && step.id == id ? &step : nullptr;
}

void StepDispatcher::Impl::cancel(StepId id, Nanos now) {
  if (StepState* step = find_step(id); step != nullptr && !step->ended)
    end_step_early(*step, BlockState::kCancelled, now);
  settle(now);
}

void StepDispatcher::Impl::add_replica(StepId id, const BlockKey& key, const Replica& replica,
                                       Nanos now) {
  StepState* step = find_step(id);
  const std::uint32_t at = step == nullptr ? kNone : table_.find(key);
  Asker asker = at == kNone ? kNobody : table_.entry(at).first;
  while (asker != kNobody && slot_of(asker) != slot_of_step(*step)) asker = progress(asker).next;
  const auto refuse = [&] { host_.on_unhold(key, replica); };
  if (asker == kNobody || replica.tier >= sources_.size() || !sources_[replica.tier].live ||
      !step->board.covers(replica.tier))
    return refuse();
  const std::uint32_t b = block_of(asker);
  PlannedBlock& block = step->plan.blocks[b];
  BlockProgress& state = step->blocks[b];
  for (const Replica& known : block.replicas.all())
    if (known.tier == replica.tier && known.at == replica.at) return refuse();
  if (block.replicas.count == kReplicasMax || replica.size_bytes != block.size_bytes)
    return refuse();
  block.replicas.at[block.replicas.count++] = replica;
  const SourceMask source = bit(replica.tier);
  state.ever |= source;
  if (options_.record && b < step->record.blocks.size())
    step->record.blocks[b].sources = state.ever;
  const bool room =
      step->plan.adaptive && std::popcount(state.mask) < static_cast<int>(kSourcesPerBlockMax);
  if ((state.mask & states_.live) == 0 || room)
    state.mask |= source;
  else
    state.spares |= source;
  if (state.phase == BlockPhase::kUnread) refile(*step, b);
  if (state.phase == BlockPhase::kStranded) rest(*step, b, now);
  recheck_overdue_ = true;
  if (step->plan.round_open)
    for (std::uint32_t i = 0; i < block.count_destinations; ++i) {
      const Destination& to = step->plan.destinations[block.first_destination + i];
      if (step->open_at[to.request] == to.position) advance_open(*step, to.request);
    }
  settle(now);
}

void StepDispatcher::Impl::round_ended(StepId id, Nanos now) {
  StepState* step = find_step(id);
  if (step == nullptr || step->ended || !step->plan.round_open) return;
  step->plan.round_open = false;
  for (std::uint32_t b = 0; b < step->blocks.size(); ++b) {
    if (step->blocks[b].phase == BlockPhase::kUnread) refile(*step, b);
    if (step->blocks[b].phase == BlockPhase::kStranded) rest(*step, b, now);
  }
  settle(now);
}

void StepDispatcher::Impl::set_live(SourceId source, bool live, Nanos now) {
  if (source >= sources_.size() || sources_[source].live == live) return;
  SourceState& changed = sources_[source];
  changed.live = live;
  if (live) changed.suspect = false;
  count_slab(source, 0);
  refresh_states();
  const SourceMask own = bit(source);
  const std::vector<std::uint32_t> slots = active_;
  for (const std::uint32_t slot : slots) {
    StepState& step = steps_[slot];
    for (std::uint32_t b = 0; b < step.blocks.size(); ++b) {
      BlockProgress& state = step.blocks[b];
      if (state.phase == BlockPhase::kEnded || (state.ever & own) == 0) continue;
      if (live) {
        const auto all = step.plan.blocks[b].replicas.all();
        bool sound = false;
        for (std::size_t i = 0; i < all.size(); ++i)
          sound = sound || (all[i].tier == source && (state.failed_replicas >> i & 1U) == 0);
        if (sound) (step.plan.adaptive || state.mask == 0 ? state.mask : state.spares) |= own;
      } else {
        state.mask &= ~own;
        state.spares &= ~own;
      }
      if (state.phase == BlockPhase::kUnread || state.phase == BlockPhase::kStranded)
        rest(step, b, now);
    }
  }
  for (std::uint32_t r = changed.oldest; !live && r != kNone;) {
    const std::uint32_t next = table_.read(r).newer;
    give_up(r, now);
    r = next;
  }
  recheck_overdue_ = true;
  settle(now);
}

StepDispatcher::StepDispatcher(Options options, std::vector<Source> sources, BufferPool& slabs,
                               Placer& placer, DispatcherHost& host)
    : impl_(std::make_unique<Impl>(options, std::move(sources), slabs, placer, host)) {}
StepDispatcher::~StepDispatcher() = default;

Result<StepId> StepDispatcher::begin(StepPlan plan, std::shared_ptr<StepSink> sink, Nanos now) {
  return impl_->begin(std::move(plan), std::move(sink), now);
}
void StepDispatcher::cancel(StepId step, Nanos now) { impl_->cancel(step, now); }
void StepDispatcher::set_claim_blocks(std::uint32_t count) { impl_->options_.claim_blocks = count; }
void StepDispatcher::add_replica(StepId step, const BlockKey& key, const Replica& replica,
                                 Nanos now) {
  impl_->add_replica(step, key, replica, now);
}
void StepDispatcher::round_ended(StepId step, Nanos now) { impl_->round_ended(step, now); }
void StepDispatcher::set_live(SourceId source, bool live, Nanos now) {
  impl_->set_live(source, live, now);
}
void StepDispatcher::on_read_complete(SourceId source, const Completion& done, Nanos now) {
  impl_->on_read_complete(source, done, now);
}
void StepDispatcher::on_placed(const PlaceDone& done, Nanos now) { impl_->on_placed(done, now); }
Nanos StepDispatcher::timers(Nanos now) { return impl_->timers(now); }
Nanos StepDispatcher::claims(Nanos now) { return impl_->claims(now); }

bool StepDispatcher::reads_wait(SourceId source) const { return impl_->unread_of_[source] > 0; }
bool StepDispatcher::idle() const {
  return impl_->free_slots_.size() == impl_->steps_.size() && impl_->table_.count_reads() == 0;
}
std::uint64_t StepDispatcher::reads_in_flight() const { return impl_->table_.count_reads(); }
SourceCounters StepDispatcher::counters(SourceId source) const {
  return impl_->sources_[source].counters;
}
DispatcherCounters StepDispatcher::counters() const { return impl_->counters_; }

SourceView StepDispatcher::view(SourceId source) const {
  const SourceState& state = impl_->sources_[source];
  SourceView view;
  view.rate_bytes_per_ns = state.device->rate_bytes_per_ns();
  view.nominal_rate_bytes_per_ns = view.rate_bytes_per_ns;
  view.latency_ns = state.device->access_latency_ns();
  view.live = state.live && !state.suspect;
  view.queued_bytes = state.out_bytes;
  for (const std::uint32_t slot : impl_->active_)
    view.queued_bytes += impl_->steps_[slot].board.unread_bytes_only(source);
  return view;
}

std::vector<Span> StepDispatcher::held(StepId id) const {
  std::vector<Span> spans;
  const StepState* step = impl_->find_step(id);
  if (step == nullptr) return spans;
  for (std::uint32_t b = 0; b < step->blocks.size(); ++b) {
    if (!step->blocks[b].direct_out) continue;
    const PlannedBlock& block = step->plan.blocks[b];
    const Destination& to = step->plan.destinations[block.first_destination];
    const auto first = step->plan.spans.begin() + to.first_span;
    spans.insert(spans.end(), first, first + to.count_spans);
  }
  return spans;
}

std::vector<StepRecord> StepDispatcher::take_records() {
  return std::exchange(impl_->records_, {});
}
std::vector<StepDispatcher::Claim> StepDispatcher::take_claim_log() {
  return std::exchange(impl_->claim_log_, {});
}

}  // namespace kvstream
