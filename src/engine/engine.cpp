#include <algorithm>
#include <future>

#include "core/logging.hpp"
#include "engine/engine_impl.hpp"

namespace kvstream {
namespace {

/// Finds and holds replicas in the tiers that are in use.
class CatalogFinder final : public ReplicaFinder {
 public:
  CatalogFinder(Catalog& catalog, std::uint64_t tiers) : catalog_(catalog), tiers_(tiers) {}
  ReplicaSet find_and_hold(const BlockKey& key) override {
    return catalog_.find_and_hold(key, tiers_);
  }

 private:
  Catalog& catalog_;
  std::uint64_t tiers_;
};

constexpr Nanos kCallTimeout = 30 * kSecond;

}  // namespace

bool EngineImpl::post(Command command) const {
  if (stopped_.load(std::memory_order_acquire)) return false;
  if (driven_) return command(clock_.now()), true;
  if (!commands_.push(std::move(command))) return false;
  wake_->ring();
  return true;
}

bool EngineImpl::call(const Command& command) const {
  if (driven_) return post(command);
  auto done = std::make_shared<std::promise<void>>();
  auto ended = done->get_future();
  const bool posted = post([&command, done](Nanos now) {
    command(now);
    done->set_value();
  });
  // A promise that the loop drops at its end breaks, which wakes this thread too.
  return posted &&
         ended.wait_for(std::chrono::nanoseconds(kCallTimeout)) == std::future_status::ready &&
         !stopped_.load(std::memory_order_acquire);
}

Status EngineImpl::register_buffer(Span memory) {
  if (memory.data == nullptr || memory.size_bytes == 0) {
    return {Code::kInvalidArgument, "register_buffer: the memory is empty"};
  }
  auto pin = HostPin::open(memory);
  if (!pin) return pin.error();
  const std::lock_guard lock(pins_mutex_);
  pins_.push_back(std::move(*pin));
  return Status::ok();
}

std::vector<LookupAnswer> EngineImpl::lookup(std::span<const LookupRequest> requests) {
  std::vector<LookupAnswer> answers(requests.size());
  const auto active = std::atomic_load(&active_);
  if (active->mode.no_cache || closing_.load()) return answers;
  const Nanos expires = clock_.now() + options_.settings.lease_ns;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    answers[i] = catalog_->lookup_and_lease(requests[i].keys, active->tiers, expires);
    looked_up_ += answers[i].blocks;
  }
  return answers;
}

void EngineImpl::release(LeaseToken lease) { never_loaded_ += catalog_->release(lease); }

Result<Ticket> EngineImpl::load_step(const StepRequest& request) {
  if (closing_.load()) return failure(Code::kClosed, "load_step: the engine is closed");
  const auto active = std::atomic_load(&active_);
  CatalogFinder finder(*catalog_, active->mode.no_cache ? 0 : active->tiers);
  auto plan = plan_step(request, finder);
  if (!plan) return failure(plan.error());
  const Nanos now = clock_.now();
  plan->deadline =
      request.deadline != 0 ? request.deadline : now + options_.settings.step_deadline_ns;
  // The holds are there; now the leases may go. What was asked for beyond a lease counts as looked
  // up by this call, so that the account closes whatever the caller does.
  for (const auto& load : request.requests) {
    const std::uint64_t leased = catalog_->release(load.lease);
    const std::uint64_t asked = load.blocks.size();
    looked_up_ += asked > leased ? asked - leased : 0;
    never_loaded_ += leased > asked ? leased - asked : 0;
  }
  auto ticket = std::make_shared<TicketState>(clock_, request, tickets_ended_);
  auto shared_plan = std::make_shared<StepPlan>(std::move(*plan));
  const bool posted = post([this, shared_plan, ticket, active](Nanos turn_now) {
    begin_step(std::move(*shared_plan), ticket, active, turn_now);
  });
  if (posted) return Ticket(ticket);
  for (const auto& block : shared_plan->blocks) {
    for (const auto& replica : block.replicas.all()) catalog_->unhold(block.key, replica);
  }
  for (const auto& load : request.requests) never_loaded_ += load.blocks.size();
  return failure(Code::kOverloaded, "load_step: the engine's command queue is full; try later");
}

void EngineImpl::begin_step(StepPlan plan, const std::shared_ptr<TicketState>& ticket,
                            const std::shared_ptr<const ActiveMode>& active, Nanos now) {
  std::vector<SourceView> views(seats_.size());
  for (std::uint8_t i = 0; i < views.size(); ++i) {
    views[i] = dispatcher_->view(i);
    const auto nominal = seats_[i].spec.nominal_read_bytes_per_s != 0
                             ? seats_[i].spec.nominal_read_bytes_per_s
                             : seats_[i].spec.throttle.read_bytes_per_s;
    views[i].nominal_rate_bytes_per_ns =
        nominal != 0 ? static_cast<double>(nominal) * 1e-9 : views[i].rate_bytes_per_ns;
  }
  apply_policy(plan, active->mode, views);
  dispatcher_->set_claim_blocks(active->mode.claim_blocks);
  auto step = dispatcher_->begin(std::move(plan), ticket, now);
  if (step) {
    ticket->set_step(*step);
    if (!ticket->drained()) steps_[*step] = ticket;
    return;
  }
  std::uint64_t blocks = 0;
  for (const auto& request : ticket->result().requests) blocks += request.blocks.size();
  never_loaded_ += blocks;
  ticket->end_without_reads(MissReason::kSourcesLost, now);
}

Status EngineImpl::cancel(const Ticket& ticket, Nanos deadline) {
  const auto state = std::dynamic_pointer_cast<const TicketState>(ticket);
  if (!state) return {Code::kInvalidArgument, "cancel: the ticket is not of this engine"};
  if (state->drained()) return Status::ok();
  if (!call([&](Nanos now) { dispatcher_->cancel(state->step(), now); })) {
    return {Code::kClosed, "cancel: the engine is closed"};
  }
  // Copies that were under way end first; then the step has ended, and only reads that land direct
  // may still write: held() names them. A driven engine's time stands still in here.
  if (driven_ ? state->done() : state->wait_until(deadline)) return Status::ok();
  return {Code::kTimedOut, "cancel: blocks are still being placed at the deadline"};
}

std::vector<Span> EngineImpl::held(const Ticket& ticket) const {
  std::vector<Span> spans;
  const auto state = std::dynamic_pointer_cast<const TicketState>(ticket);
  if (!state || state->drained()) return spans;
  if (call([&](Nanos) { spans = dispatcher_->held(state->step()); })) return spans;
  const std::lock_guard lock(close_mutex_);
  if (dispatcher_ != nullptr) spans = dispatcher_->held(state->step());
  return spans;
}

SaveTicket EngineImpl::save_step(const SaveRequest& request) {
  const auto active = std::atomic_load(&active_);
  if (active->mode.no_cache || closing_.load() ||
      (active->mode.replication == Replication::kNone && request.tiers == 0)) {
    return std::make_shared<SaveState>(clock_, SaveRequest{},
                                       tickets_ended_);  // nothing is offered
  }
  auto ticket = std::make_shared<SaveState>(clock_, request, tickets_ended_);
  offered_ += request.blocks.size();
  std::vector<TargetView> views = target_views_;
  for (std::size_t i = 0; i < views.size(); ++i) views[i].in_use = (active->tiers >> i & 1) != 0;
  const auto policy = make_replication_policy(active->mode.replication);
  for (std::size_t i = 0; i < request.blocks.size(); ++i) {
    const auto& block = request.blocks[i];
    const NewBlock fresh{block.key, block.size_bytes, block.position};
    WriteTargets targets{request.tiers, 0};
    if (request.tiers == 0) targets = policy->targets(fresh, views);
    if (stage_one(block, i, targets, ticket)) continue;
    ++dropped_;
    ticket->on_dropped(false);
  }
  return ticket;
}

bool EngineImpl::stage_one(const SaveBlock& block, std::size_t index, const WriteTargets& targets,
                           const std::shared_ptr<SaveState>& ticket) {
  if (block.size_bytes == 0 || block.size_bytes > write_slabs_->slab_bytes()) return false;
  std::byte* slab = write_slabs_->take();
  if (slab == nullptr) return false;
  const auto seat =
      static_cast<std::size_t>(slab - write_slabs_->region().data) / write_slabs_->slab_bytes();
  staging_[seat] = {ticket, index, {block.key, block.size_bytes, block.position}, targets};
  ++staging_count_;
  const StageJob job{seat, ticket->spans_of(index), slab, block.size_bytes,
                     std::min(write_slabs_->slab_bytes(), (block.size_bytes + 4095U) & ~4095U)};
  if (copies_->submit_stage(job)) return true;
  staging_[seat] = {};
  --staging_count_;
  write_slabs_->give(slab);
  return false;
}

Status EngineImpl::set_mode(const Mode& mode) {
  auto active = make_active(mode);
  if (!active) return active.error();
  std::atomic_store(&active_, std::move(*active));
  return Status::ok();
}

std::vector<ContentEntry> EngineImpl::contents() const {
  std::vector<ContentEntry> entries;
  catalog_->for_each([&](const BlockKey& key, const ReplicaSet& set) {
    ContentEntry entry{key, set.at[0].size_bytes, 0, 0};
    for (const auto& replica : set.all()) {
      (replica.own ? entry.own : entry.others) |= std::uint64_t{1} << replica.tier;
    }
    entries.push_back(entry);
  });
  return entries;
}

void EngineImpl::drop(std::span<const BlockKey> keys, std::uint64_t tiers) {
  call([&](Nanos) {
    for (const auto& key : keys) {
      const auto set = catalog_->find(key, tiers);
      for (const auto& replica : set.all()) {
        if (replica.own) catalog_->retract(key, replica);
      }
    }
    free_retracted();
  });
}

void EngineImpl::touch(std::span<const BlockKey> keys) {
  for (const auto& key : keys) catalog_->touch(key);
}

Status EngineImpl::refresh(Nanos deadline) {
  if (driven_) return Status::ok();
  // Two rounds: one may have been under way when this was called.
  std::vector<std::uint64_t> wanted, wanted_follows;
  for (auto& seat : seats_) {
    const std::uint64_t follows = seat.tier->report().follow_rounds;
    wanted.push_back(seat.chores->rounds() + 2);
    wanted_follows.push_back(follows == 0 ? 0 : follows + 2);
  }
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    while (seats_[i].chores->rounds() < wanted[i] ||
           seats_[i].tier->report().follow_rounds < wanted_follows[i]) {
      if (clock_.now() >= deadline) {
        return {Code::kTimedOut, "refresh: tier " + seats_[i].spec.name + " is still busy"};
      }
      seats_[i].chores->hurry();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  call([this](Nanos) {
    for (std::uint8_t tier = 0; tier < seats_.size(); ++tier) take_changes(tier);
  });
  return Status::ok();
}

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  if (!call([&](Nanos) { stats = collect_stats(); })) return last_stats_;
  return stats;
}

std::vector<StepRecord> EngineImpl::take_step_records() {
  std::vector<StepRecord> records;
  call([&](Nanos) { records = dispatcher_->take_records(); });
  return records;
}

EngineStats EngineImpl::collect_stats() const {
  EngineStats stats;
  const auto dispatched = dispatcher_->counters();
  const auto known = catalog_->counts();
  stats.looked_up = looked_up_;
  stats.never_loaded = never_loaded_;
  stats.requested = dispatched.requested;
  stats.hits = dispatched.hits;
  stats.misses = dispatched.misses;
  stats.late = dispatched.late;
  stats.cancelled = dispatched.cancelled;
  stats.offered = offered_;
  stats.published = published_;
  stats.dropped = dropped_;
  stats.staged_bytes = dispatched.staged_bytes;
  stats.direct_bytes = dispatched.direct_bytes;
  stats.duplicate_read_bytes = dispatched.duplicate_read_bytes;
  stats.leases = known.leases;
  stats.holds = known.holds;
  stats.reads_in_flight = dispatcher_->reads_in_flight();
  stats.writes_in_flight = pump_->in_flight() + static_cast<std::uint64_t>(staging_count_.load());
  stats.catalog_blocks = known.blocks;
  stats.catalog_replicas = known.replicas;
  stats.slabs_free = read_slabs_->free_count() + write_slabs_->free_count();
  stats.slabs_all = read_slabs_->count() + write_slabs_->count();
  stats.verify_cpu_s = copies_->cpu_s();
  for (std::uint8_t i = 0; i < seats_.size(); ++i) {
    const auto& seat = seats_[i];
    const auto read = dispatcher_->counters(i);
    const auto written = pump_->counters(i);
    TierStats tier;
    tier.name = seat.spec.name;
    tier.kind = seat.tier->traits().kind;
    tier.hits = read.hits;
    tier.reads = read.reads;
    tier.read_bytes = read.read_bytes;
    tier.read_errors = read.errors;
    tier.corrupt = read.corrupt;
    tier.recycled = seat.recycled;
    tier.hedges = read.hedges;
    tier.overdue = read.overdue;
    tier.writes = written.writes;
    tier.written_bytes = written.written_bytes;
    tier.write_errors = written.errors;
    tier.evicted = written.evicted;
    tier.rate_bytes_per_s = seat.device->rate_bytes_per_ns() * 1e9;
    tier.lone_latency_ns = seat.device->lone_latency_ns();
    tier.window_bytes = seat.device->window_bytes();
    tier.report = seat.tier->report();
    stats.tiers.push_back(std::move(tier));
  }
  return stats;
}

}  // namespace kvstream
