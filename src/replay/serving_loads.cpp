// The loads of a serving engine's steps, and the comparing of what they brought.
#include <algorithm>

#include "core/logging.hpp"
#include "replay/payload.hpp"
#include "replay/proc_stats.hpp"
#include "replay/serving_loop.hpp"

namespace kvstream {

/// Sync: one load for the whole step. Async: one a request, since each is waited for alone; under
/// `serial` one behind the other.
void ServingLoop::start_loads(std::span<const WantedLoad> wanted, Nanos now) {
  const bool sync = options_.scheduler.load_mode == LoadMode::kSync;
  const std::size_t a_load = sync ? std::max<std::size_t>(1, wanted.size()) : 1;
  for (std::size_t first = 0; first < wanted.size(); first += a_load) {
    auto load = std::make_unique<Load>();
    for (std::size_t i = first; i < std::min(wanted.size(), first + a_load); ++i) {
      Lookup& lookup = lookups_[wanted[i].request];
      load->wanted.push_back(wanted[i]);
      load->leases.push_back(std::move(lookup.leases));
      load->leases.back().resize(shards_.size());
      lookup = {};
    }
    const bool in_turn = !sync && mode_.policy == ReadPolicy::kSerial && !loads_.empty();
    if (in_turn || start_or_give_up(*load, now)) loads_.push_back(std::move(load));
  }
}

/// The engine takes no more: what cannot be loaded is computed. False when nothing was begun; what
/// some shards have begun ends as any load does, and brings nothing.
bool ServingLoop::start_or_give_up(Load& load, Nanos now) {
  const Status status = start(load, now);
  if (status.is_ok()) return true;
  logger("replay").warn("{}; {} requests are computed instead", status.message(),
                        load.wanted.size());
  for (std::size_t i = 0; i < load.wanted.size(); ++i) {
    for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s].engine->release(load.leases[i][s]);
    if (load.tickets.empty()) scheduler_->loaded(load.wanted[i].request, 0);
  }
  for (std::size_t s = 0; s < load.tickets.size(); ++s) {
    [[maybe_unused]] const Status late = shards_[s].engine->cancel(load.tickets[s], now);
  }
  for (std::size_t s = load.tickets.size(); s < load.memory.size(); ++s) {
    for (std::byte* slab : load.memory[s]) memory_->give(slab);
  }
  load.memory.resize(load.tickets.size());
  return !load.tickets.empty();
}

std::byte* ServingLoop::take_memory() {
  std::byte* slab = memory_->take();
  if (slab != nullptr) return slab;
  const Nanos begun = options_.clock->now();
  while (slab == nullptr && !compares_.empty()) {
    compare(compares_.front());
    compares_.pop_front();
    collect_drained();
    slab = memory_->take();
  }
  collect_staged();
  if (slab == nullptr) slab = memory_->take();
  excluded_ += options_.clock->now() - begun;
  return slab;
}

Status ServingLoop::start(Load& load, Nanos now) {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    std::vector<std::vector<Span>> spans(load.wanted.size());
    std::vector<std::vector<BlockRequest>> blocks(load.wanted.size());
    std::vector<LoadRequest> parts;
    auto& memory = load.memory.emplace_back();
    for (std::size_t i = 0; i < load.wanted.size(); ++i) {
      const WantedLoad& wanted = load.wanted[i];
      const TraceRequest& request = shards_[shard].requests[wanted.request];
      for (std::uint32_t b = wanted.first_block; b < wanted.first_block + wanted.count; ++b) {
        std::byte* slab = take_memory();
        if (slab == nullptr) {
          return {Code::kOverloaded, "the serving model's memory for loads is used up"};
        }
        memory.push_back(slab);
        spans[i].push_back({slab, request.sizes_bytes[b]});
      }
      for (std::uint32_t b = 0; b < wanted.count; ++b) {
        blocks[i].push_back({request.keys[wanted.first_block + b],
                             request.sizes_bytes[wanted.first_block + b],
                             std::span<const Span>(&spans[i][b], 1)});
      }
      parts.push_back({blocks[i], load.leases[i][shard]});
    }
    auto ticket = shards_[shard].engine->load_step({parts, now + options_.step_deadline_ns});
    if (!ticket) return ticket.error();
    load.tickets.push_back(*ticket);
    ++submissions_;
  }
  return Status::ok();
}

void ServingLoop::take_finished_loads(Nanos now) {
  for (std::size_t i = 0; i < loads_.size();) {
    Load& load = *loads_[i];
    if (load.tickets.empty()) {
      if (i > 0) break;  // waits for its turn
      if (!start_or_give_up(load, now)) {
        loads_.erase(loads_.begin());
        continue;
      }
    }
    if (!all_done(load)) {
      ++i;
      continue;
    }
    end_load(load);
    draining_.push_back(std::move(loads_[i]));
    loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool ServingLoop::all_done(const Load& load) {
  return std::all_of(load.tickets.begin(), load.tickets.end(),
                     [](const Ticket& ticket) { return ticket->done(); });
}

/// A block is there when every shard has its part.
void ServingLoop::end_load(Load& load) {
  Nanos first = kNever, last = 0;
  const bool whole = load.tickets.size() == shards_.size();
  std::vector<std::uint32_t> usable(load.wanted.size(), whole ? ~std::uint32_t{0} : 0);
  load.counted = true;
  for (std::size_t shard = 0; shard < load.tickets.size(); ++shard) {
    const StepResult& result = load.tickets[shard]->result();
    first = std::min(first, result.submitted_at);
    last = std::max(last, result.ended_at);
    std::size_t at = 0;
    for (std::size_t i = 0; i < load.wanted.size(); ++i) {
      const WantedLoad& wanted = load.wanted[i];
      const TraceRequest& request = shards_[shard].requests[wanted.request];
      usable[i] = std::min(usable[i], result.requests[i].usable_blocks);
      run_.usable_blocks += result.requests[i].usable_blocks;
      for (std::uint32_t b = 0; b < wanted.count; ++b, ++at) {
        const BlockState state = result.requests[i].blocks[b].state;
        run_.hits += state == BlockState::kHit;
        run_.misses += state == BlockState::kMiss;
        run_.late += state == BlockState::kLate;
        run_.cancelled += state == BlockState::kCancelled;
        if (state != BlockState::kHit || options_.verify == Verify::kOff) continue;
        const std::uint32_t block = wanted.first_block + b;
        compares_.push_back(
            {&load, request.keys[block], {load.memory[shard][at], request.sizes_bytes[block]}});
        ++load.compares;
      }
    }
  }
  run_.step_read_s.push_back(static_cast<double>(last - first) * 1e-9);
  for (std::size_t i = 0; i < load.wanted.size(); ++i) {
    scheduler_->loaded(load.wanted[i].request, usable[i]);
  }
}

void ServingLoop::compare(const Compare& what) {
  const double before_s = thread_cpu_s();
  run_.wrong_bytes += count_wrong_bytes(what.key, {what.bytes.data, what.bytes.size_bytes});
  run_.bytes_verified += what.bytes.size_bytes;
  run_.verify_cpu_s += thread_cpu_s() - before_s;
  --what.load->compares;
}

void ServingLoop::collect_drained() {
  for (std::size_t i = 0; i < draining_.size();) {
    Load& load = *draining_[i];
    const bool drained =
        load.compares == 0 && std::all_of(load.tickets.begin(), load.tickets.end(),
                                          [](const Ticket& ticket) { return ticket->drained(); });
    if (!drained) {
      ++i;
      continue;
    }
    for (const auto& row : load.memory) {
      for (std::byte* slab : row) memory_->give(slab);
    }
    draining_.erase(draining_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace kvstream
