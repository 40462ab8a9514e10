#include "replay/serving_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace kvstream {
namespace {

constexpr Nanos kPoll_ns = 200 * kMicrosecond;  // how soon one of several tickets is
constexpr Nanos kPendingLookup_ns = kMillisecond;
constexpr Nanos kStart_ns = kSecond;  // of elapsed(): 0 says "not yet"

double seconds(Nanos duration) { return static_cast<double>(duration) * 1e-9; }
Nanos nanos(double duration_s) { return static_cast<Nanos>(duration_s * 1e9 + 0.5); }

/// Slabs for everything that may be on its way at once: what fills the device's KV, a partial block
/// a sequence, and what a step computes, twice (one step may still be staged).
std::uint64_t slabs_wanted(const ServingOptions& options) {
  const auto& scheduler = options.scheduler;
  const std::uint64_t block = std::max(1U, options.shape.block_tokens);
  return scheduler.kv.capacity_tokens / block + 2ULL * (scheduler.token_budget / block + 1) +
         3ULL * scheduler.sequences_max + 16;
}

}  // namespace

std::uint64_t serving_memory_bytes(const ServingOptions& options) {
  return slabs_wanted(options) * ((options.block_bytes_max + 4095ULL) & ~4095ULL);
}

std::string no_ceiling_reason(const ServingOptions& options) {
  if (options.scheduler.load_mode == LoadMode::kAsync) {
    return "async loads hide behind other requests' forward passes";
  }
  return options.arrivals == Arrivals::kTrace ? "arrivals bound the throughput" : "";
}

ServingLoop::ServingLoop(std::vector<ServingShard> shards, const ServingOptions& options)
    : shards_(std::move(shards)), options_(options) {}

ServingLoop::~ServingLoop() {
  const bool used =
      !draining_.empty() ||
      std::any_of(saved_.begin(), saved_.end(), [](const auto& s) { return !s.memory.empty(); });
  // An engine that did not come to rest may still write into it, or read from it.
  if (used && options_.backing == BufferPool::Backing::kMemory) memory_->abandon();
}

Result<std::unique_ptr<ServingLoop>> ServingLoop::open(std::vector<ServingShard> shards,
                                                       const ServingOptions& options) {
  std::unique_ptr<ServingLoop> loop(new ServingLoop(std::move(shards), options));
  auto memory = BufferPool::open({loop->shards_.size() * serving_memory_bytes(options),
                                  options.block_bytes_max, -1, options.backing});
  if (!memory) return failure(memory.error());
  loop->memory_ = std::move(*memory);
  if (options.backing == BufferPool::Backing::kMemory) {
    for (const auto& shard : loop->shards_) {
      if (Status status = shard.engine->register_buffer(loop->memory_->region()); !status.is_ok()) {
        return failure(status);
      }
    }
  }
  return loop;
}

Status ServingLoop::begin(const Mode& mode, Nanos now) {
  mode_ = mode;
  const auto& requests = shards_.front().requests;
  auto scheduler = Scheduler::open(options_.scheduler, requests);
  if (!scheduler) return scheduler.error();
  scheduler_ = std::make_unique<Scheduler>(std::move(*scheduler));
  run_ = {};
  run_.started_at = now;
  started_at_ = now - kStart_ns;
  excluded_ = 0;
  idle_since_ = -1;
  next_ = finished_ = 0;
  arrived_at_.assign(requests.size(), 0);
  first_token_at_.assign(requests.size(), 0);
  lookups_.assign(requests.size(), Lookup{});
  fresh_.clear();
  made_ = offered_ = 0;
  phase_ = Phase::kReady;
  return Status::ok();
}

Nanos ServingLoop::next_arrival() const {
  const auto& requests = shards_.front().requests;
  if (next_ >= requests.size()) return kNever;
  if (options_.arrivals == Arrivals::kClosed) {
    // Not by the scheduler: it is told at a pass's begin what will have ended with it.
    return next_ - finished_ < options_.in_system_max ? started_at_ : kNever;
  }
  return started_at_ + excluded_ + kStart_ns +
         nanos(seconds(requests[next_].arrival_ns) * options_.time_scale);
}

void ServingLoop::take_arrivals(Nanos now) {
  for (Nanos at = next_arrival(); at <= now; at = next_arrival()) {
    const RequestIndex request = next_++;
    arrived_at_[request] =
        options_.arrivals == Arrivals::kClosed ? elapsed(now) : at - started_at_ - excluded_;
    // A request that can never fit is refused by the engine: counted, and no part of the tokens.
    if (!scheduler_->arrive(request).is_ok()) {
      ++finished_;
      ++run_.rejected;
    }
  }
}

Nanos ServingLoop::act(Nanos now) {
  now_ = now;
  for (;;) {
    if (phase_ == Phase::kDone) return kNever;
    if (stopped()) {
      stop_early(now);
      return kNever;
    }
    take_arrivals(now);
    collect_drained();
    collect_staged();
    take_finished_loads(now);
    switch (phase_) {
      case Phase::kReady: {
        Nanos again = kNever;
        if (!begin_step(now, again)) return again;
        break;
      }
      case Phase::kSettling:
        if (!offer() || !saves_settled()) return kNever;
        run_.write_wait_s += seconds(now - phase_since_);
        phase_ = Phase::kReady;
        break;
      case Phase::kLoading:
        if (!loads_.empty()) return kNever;
        run_.read_wait_s += seconds(now - phase_since_);
        begin_forward(now);
        break;
      case Phase::kForward:
        if (now < forward_end_) return forward_end_;
        end_forward(now);
        now = now_;
        break;
      case Phase::kSaving:
        if (!offer() || !saves_settled()) return kNever;
        run_.write_wait_s += seconds(now - phase_since_);
        answer(now);
        break;
      case Phase::kDone:
        return kNever;
    }
  }
}

/// True when the phase has changed; else `again` says when to look again.
bool ServingLoop::begin_step(Nanos now, Nanos& again) {
  if (mode_.writes == WriteTiming::kDeferred) {
    if (!offer()) {
      again = kNever;
      return false;
    }
  } else if (!offer() || !saves_settled()) {
    phase_ = Phase::kSettling;
    phase_since_ = now;
    return true;
  }
  lookup_pending_ = false;
  const Batch& batch = scheduler_->schedule(*this);
  batch_ = &batch;
  start_loads(batch.loads, now);
  if (idle_since_ >= 0) {
    (idle_for_loads_ ? run_.read_wait_s : run_.idle_s) += seconds(now - idle_since_);
    idle_since_ = -1;
  }
  if (batch.work.empty() && batch.loads.empty()) {
    if (next_ >= arrived_at_.size() && scheduler_->unfinished() == 0) {
      finish(now);
      return true;
    }
    idle_since_ = now;
    idle_for_loads_ = !loads_.empty();
    again = next_arrival();
    if (lookup_pending_) again = std::min(again, now + kPendingLookup_ns);
    return false;
  }
  if (batch.work.empty()) return options_.scheduler.load_mode == LoadMode::kAsync;
  if (options_.scheduler.load_mode == LoadMode::kSync && !loads_.empty()) {
    phase_ = Phase::kLoading;
    phase_since_ = now;
    return true;
  }
  begin_forward(now);
  return true;
}

void ServingLoop::begin_forward(Nanos now) {
  const Nanos lasts = nanos(forward_time_s(options_.forward, batch_->work) * options_.time_scale);
  forward_end_ = now + std::max<Nanos>(1, lasts);
  run_.forward_s += seconds(lasts);
  ++run_.steps;
  // What the pass will have done is known already; nobody hears of it before its end.
  ended_ = scheduler_->forward_ended();
  plan_saves();
  phase_ = Phase::kForward;
}

/// Payloads that the timer did not cover are made outside the measured time.
void ServingLoop::end_forward(Nanos now) {
  const Nanos begun = options_.clock->now(), excluded_before = excluded_;
  while (make_next()) {
  }
  const Nanos took = options_.clock->now() - begun - (excluded_ - excluded_before);
  excluded_ += took;
  now_ = now + took;
  if (mode_.writes == WriteTiming::kInline && offered_ < fresh_.size()) {
    phase_ = Phase::kSaving;
    phase_since_ = now_;
    return;
  }
  answer(now_);
}

void ServingLoop::answer(Nanos now) {
  const auto& requests = shards_.front().requests;
  const Nanos at = elapsed(now);
  for (const RequestIndex request : ended_.first_token) {
    first_token_at_[request] = at;
    run_.ttft_s.push_back(seconds(at - arrived_at_[request]));
  }
  for (const RequestIndex request : ended_.finished) {
    run_.e2e_s.push_back(seconds(at - arrived_at_[request]));
    if (requests[request].output_tokens > 1) {
      run_.tpot_s.push_back(seconds(at - first_token_at_[request]) /
                            (requests[request].output_tokens - 1));
    }
    release(lookups_[request]);
    ++finished_;
    ++run_.requests;
  }
  phase_ = Phase::kReady;
}

void ServingLoop::finish(Nanos now) {
  run_.ended_at = now;
  run_.elapsed_s = seconds(elapsed(now) - kStart_ns);
  run_.excluded_s = seconds(excluded_);
  const SchedulerAccounts& accounts = scheduler_->accounts();
  run_.prompt_tokens = accounts.prompt;
  run_.cached_device_tokens = accounts.cached_device;
  run_.cached_tokens = accounts.cached;
  run_.computed_tokens = accounts.computed;
  run_.lost_tokens = accounts.lost_to_preemption;
  run_.recomputed_output_tokens = accounts.recomputed_output;
  run_.output_tokens = accounts.output;
  run_.preemptions = accounts.preemptions;
  phase_ = Phase::kDone;
}

void ServingLoop::stop_early(Nanos now) {
  for (auto& load : loads_) {
    for (std::size_t shard = 0; shard < load->tickets.size(); ++shard) {
      [[maybe_unused]] const auto late =
          shards_[shard].engine->cancel(load->tickets[shard], options_.clock->now() + 5 * kSecond);
    }
    if (load->tickets.empty()) {
      for (auto& leases : load->leases) {
        for (std::size_t s = 0; s < leases.size(); ++s) shards_[s].engine->release(leases[s]);
      }
    } else if (all_done(*load)) {
      end_load(*load);
    }
    draining_.push_back(std::move(load));
  }
  loads_.clear();
  for (auto& lookup : lookups_) release(lookup);
  run_.interrupted = true;
  finish(now);
}

ExternalCache::Answer ServingLoop::matched(RequestIndex request, std::uint32_t from_block) {
  const auto keys_of = [&](std::size_t shard) {
    const auto& keys = shards_[shard].requests[request].keys;
    return std::span(keys).subspan(std::min<std::size_t>(from_block, keys.size()));
  };
  if (mode_.no_cache || keys_of(0).empty()) return {from_block, false};
  Lookup& lookup = lookups_[request];
  if (lookup.known && lookup.from == from_block && now_ - lookup.at < options_.lease_ns / 2) {
    return {from_block + lookup.blocks, false};
  }
  release(lookup);
  if (!lookup.counted) run_.blocks_asked += keys_of(0).size() * shards_.size();
  lookup.counted = true;
  std::uint32_t blocks = ~std::uint32_t{0};
  bool pending = false;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const LookupRequest asked{keys_of(shard)};
    const auto answers = shards_[shard].engine->lookup({&asked, 1});
    blocks = std::min(blocks, answers.front().blocks);
    pending = pending || answers.front().pending;
    lookup.leases.push_back(answers.front().lease);
  }
  if (pending || blocks == 0) {
    lookup_pending_ = lookup_pending_ || pending;
    release(lookup);
    return {from_block, pending};
  }
  lookup.from = from_block;
  lookup.blocks = blocks;
  lookup.at = now_;
  lookup.known = true;
  return {from_block + blocks, false};
}

void ServingLoop::release(Lookup& lookup) {
  for (std::size_t shard = 0; shard < lookup.leases.size(); ++shard) {
    shards_[shard].engine->release(lookup.leases[shard]);
  }
  lookup.leases.clear();
  lookup.known = false;
}

bool ServingLoop::work_on_payloads(const Clock& clock, Nanos until) {
  bool worked = false;
  while (clock.now() < until && phase_ == Phase::kForward && make_next()) worked = true;
  while (clock.now() < until && !compares_.empty()) {
    compare(compares_.front());
    compares_.pop_front();
    worked = true;
  }
  return worked;
}

void ServingLoop::wait(const Clock& clock, Nanos until) const {
  if (phase_ == Phase::kLoading && !loads_.empty()) {
    for (const auto& ticket : loads_.front()->tickets) ticket->wait_until(until);
  } else if ((phase_ == Phase::kSaving || phase_ == Phase::kSettling) && !saved_.empty()) {
    saved_.front().ticket->wait_done(until);
  } else {
    // One of several tickets is looked for now and then; a timer is slept through.
    const bool polls = phase_ != Phase::kForward && !(loads_.empty() && saved_.empty());
    const Nanos left = std::max<Nanos>(0, until - clock.now());
    std::this_thread::sleep_for(std::chrono::nanoseconds(polls ? std::min(kPoll_ns, left) : left));
  }
}

RankRun ServingLoop::take_run() {
  // Loads that could not be cancelled when the run was stopped.
  for (auto& load : draining_) {
    if (!load->counted && all_done(*load)) end_load(*load);
  }
  while (!compares_.empty()) {
    compare(compares_.front());
    compares_.pop_front();
  }
  collect_drained();
  collect_staged();
  return std::move(run_);
}

}  // namespace kvstream
