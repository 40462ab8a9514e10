// The real dispatcher, devices and pool between fake tiers, placer, host and clock.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "memory/buffer_pool.hpp"
#include "step/dispatcher.hpp"
#include "step/step_fakes.hpp"

namespace kvstream::rig {

/// Counts holds; they close at zero.
class FakeHost final : public DispatcherHost {
 public:
  void on_unhold(const BlockKey&, const Replica&) override { --holds; }
  void on_mismatch(const BlockKey&, const Replica&) override { ++mismatches; }
  void on_hit(const BlockKey&, SourceId) override { ++hits; }
  std::int64_t holds = 0;
  std::uint64_t mismatches = 0, hits = 0;
};

/// A pool that later tests use again; its slabs must all have come back.
inline BufferPool& pool_of(std::uint32_t slabs, std::uint32_t slab_bytes = 4096) {
  static std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<BufferPool>> pools;
  auto& pool = pools[{slabs, slab_bytes}];
  if (!pool) {
    BufferPool::Options options;
    options.bytes = std::uint64_t{slabs} * slab_bytes;
    options.slab_bytes = slab_bytes;
    auto opened = BufferPool::open(options);
    if (!opened) throw std::runtime_error(opened.error().to_string());
    pool = std::move(*opened);
  }
  if (pool->free_count() != pool->count()) throw std::runtime_error("a slab was not given back");
  return *pool;
}

struct Violations {
  std::uint64_t twice = 0;          ///< a block reported again, or after the end
  std::uint64_t written_after = 0;  ///< reported while something may write there, and not `held`
  std::uint64_t wrong_bytes = 0;    ///< a hit without the block's bytes
  std::uint64_t early = 0;          ///< end or drained before its time
};

class Rig;

/// One step of the rig: its memory and what became of it.
struct RigStep final : StepSink {
  RigStep(Rig& owner, std::size_t requests)
      : rig(owner), outcomes(requests), reported_at(requests) {}
  void on_block(std::uint32_t request, std::uint32_t position, BlockOutcome outcome, bool held,
                Nanos now) override;
  void on_step_end(Nanos now) override;
  void on_drained(Nanos now) override;

  Rig& rig;
  StepId id = 0;
  std::vector<std::vector<BlockOutcome>> outcomes;
  std::vector<std::vector<Nanos>> reported_at;
  std::vector<std::vector<Span>> memory;            ///< [request][position]
  std::vector<std::vector<std::uint64_t>> numbers;  ///< of the blocks
  std::vector<std::unique_ptr<std::byte[]>> buffers;
  std::size_t left = 0;
  Nanos began = 0, ended = kNever, drained = kNever;

  std::size_t count(BlockState state) const {
    std::size_t n = 0;
    for (const auto& request : outcomes)
      for (const BlockOutcome& outcome : request) n += outcome.state == state;
    return n;
  }
};

/// What a step of the rig wants: per request the block numbers, per number its sources.
struct Wish {
  std::vector<std::vector<std::uint64_t>> requests;
  std::map<std::uint64_t, SourceMask> sources;  ///< claimable now
  std::map<std::uint64_t, SourceMask> spares;
  Nanos deadline = kNever;
  std::uint32_t client = 0;
  bool round_open = false;
  bool adaptive = true;
  Gate gate = Gate::kNone;
  std::uint32_t block_bytes = kBlockBytes;
};

class Rig {
 public:
  struct SourceSpec {
    double bytes_per_s = 1e9;  ///< as if blocks were 1 MiB
    Nanos latency = 0;
    double prior_factor = 1;
    std::uint32_t in_flight_max = 64;
  };
  Rig(std::vector<SourceSpec> specs, StepDispatcher::Options options = {},
      std::uint32_t slabs = 512)
      : pool(pool_of(slabs)), placer(clock, watch) {
    options.record = true;
    std::vector<StepDispatcher::Source> sources;
    for (const SourceSpec& spec : specs) {
      const double rate = scaled(spec.bytes_per_s);
      tiers.push_back(std::make_unique<FakeTier>(clock, watch, rate / 1e9, spec.latency));
      Device::Options device;
      device.block_bytes = kBlockBytes;
      device.prior_rate_bytes_per_s = rate * spec.prior_factor;
      device.prior_latency_ns =
          spec.latency + static_cast<Nanos>(kBlockBytes / (rate * spec.prior_factor) * 1e9);
      device.in_flight_max = spec.in_flight_max;
      devices.push_back(std::make_unique<Device>(device));
      sources.push_back({tiers.back().get(), devices.back().get()});
    }
    options_ = options;
    sources_ = sources;
  }
  /// Traits may be changed before the first step.
  StepDispatcher& dispatcher() {
    if (!dispatcher_)
      dispatcher_ = std::make_unique<StepDispatcher>(options_, sources_, pool, placer, host);
    return *dispatcher_;
  }

  Replica replica_of(std::uint64_t number, SourceId source, std::uint32_t size = kBlockBytes) {
    Replica replica;
    replica.tier = source;
    replica.at.slot = static_cast<std::uint32_t>(number);
    replica.size_bytes = size;
    replica.checksum = sum_for(number, size);
    return replica;
  }

  StepPlan plan_of(const Wish& wish, RigStep& step);
  RigStep& begin(const Wish& wish);
  /// A block of an open round is found at a source.
  void add_replica(RigStep& step, std::uint64_t number, SourceId source) {
    ++host.holds;
    dispatcher().add_replica(step.id, key_of(number), replica_of(number, source), clock.now());
  }
  Nanos turn();
  /// Turns until `until` says so; false when nothing moves any more, or after too many turns.
  bool run(const std::function<bool()>& until, Nanos latest = kNever,
           std::size_t turns_max = 400'000);
  bool run_to_end() {
    return run([&] { return all_ended(); });
  }
  bool all_ended() const {
    return std::all_of(steps.begin(), steps.end(),
                       [](const auto& step) { return step->left == 0; });
  }
  /// Ends all that is out; afterwards nothing may be left anywhere.
  bool drain();

  FakeClock clock;
  WriteWatch watch;
  BufferPool& pool;
  FakePlacer placer;
  FakeHost host;
  std::vector<std::unique_ptr<FakeTier>> tiers;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::shared_ptr<RigStep>> steps;
  Violations violations;
  Nanos wake = kNever;

 private:
  StepDispatcher::Options options_;
  std::vector<StepDispatcher::Source> sources_;
  std::unique_ptr<StepDispatcher> dispatcher_;
};

inline void RigStep::on_block(std::uint32_t request, std::uint32_t position, BlockOutcome outcome,
                              bool held, Nanos now) {
  BlockOutcome& known = outcomes[request][position];
  if (known.state != BlockState::kPending || left == 0) {
    ++rig.violations.twice;
    return;
  }
  known = outcome;
  reported_at[request][position] = now;
  --left;
  const Span& span = memory[request][position];
  if (rig.watch.writing(span.data) && !held) ++rig.violations.written_after;
  if (outcome.state == BlockState::kHit &&
      sum_of(span.data, span.size_bytes) !=
          sum_for(numbers[request][position], static_cast<std::uint32_t>(span.size_bytes)))
    ++rig.violations.wrong_bytes;
}

inline void RigStep::on_step_end(Nanos now) {
  if (left != 0 || ended != kNever) ++rig.violations.early;
  ended = now;
}

inline void RigStep::on_drained(Nanos now) {
  if (ended == kNever || drained != kNever) ++rig.violations.early;
  for (const auto& request : memory)
    for (const Span& span : request)
      if (rig.watch.writing(span.data)) ++rig.violations.early;
  drained = now;
}

inline StepPlan Rig::plan_of(const Wish& wish, RigStep& step) {
  StepPlan plan;
  plan.deadline = wish.deadline;
  plan.client = wish.client;
  plan.round_open = wish.round_open;
  plan.adaptive = wish.adaptive;
  plan.gate = wish.gate;
  std::map<std::uint64_t, std::uint32_t> known;
  std::vector<std::vector<Destination>> wanted;
  for (std::uint32_t r = 0; r < wish.requests.size(); ++r) {
    const auto count = static_cast<std::uint32_t>(wish.requests[r].size());
    plan.requests.push_back({count, count, MissReason::kNone});
    step.outcomes[r].resize(count);
    step.reported_at[r].resize(count);
    step.memory.emplace_back();
    step.numbers.push_back(wish.requests[r]);
    for (std::uint32_t p = 0; p < count; ++p) {
      const std::uint64_t number = wish.requests[r][p];
      step.buffers.push_back(std::make_unique<std::byte[]>(wish.block_bytes));
      step.memory.back().push_back({step.buffers.back().get(), wish.block_bytes});
      const auto [at, fresh] =
          known.try_emplace(number, static_cast<std::uint32_t>(plan.blocks.size()));
      if (fresh) {
        PlannedBlock& block = plan.blocks.emplace_back();
        block.key = key_of(number);
        block.size_bytes = wish.block_bytes;
        block.order = at->second;
        block.request = r;
        if (const auto found = wish.sources.find(number); found != wish.sources.end())
          block.claimable = found->second;
        if (const auto found = wish.spares.find(number); found != wish.spares.end())
          block.spares = found->second;
        for (SourceId s = 0; s < tiers.size(); ++s)
          if (((block.claimable | block.spares) & bit(s)) != 0) {
            block.replicas.at[block.replicas.count++] = replica_of(number, s, wish.block_bytes);
            ++host.holds;
          }
        wanted.emplace_back();
      }
      wanted[at->second].push_back({r, p, 0, 1});
    }
  }
  for (std::uint32_t b = 0; b < plan.blocks.size(); ++b) {
    plan.blocks[b].first_destination = static_cast<std::uint32_t>(plan.destinations.size());
    plan.blocks[b].count_destinations = static_cast<std::uint32_t>(wanted[b].size());
    for (Destination to : wanted[b]) {
      to.first_span = static_cast<std::uint32_t>(plan.spans.size());
      plan.spans.push_back(step.memory[to.request][to.position]);
      plan.destinations.push_back(to);
    }
  }
  return plan;
}

inline RigStep& Rig::begin(const Wish& wish) {
  auto step = std::make_shared<RigStep>(*this, wish.requests.size());
  StepPlan plan = plan_of(wish, *step);
  for (const auto& request : wish.requests) step->left += request.size();
  step->began = clock.now();
  steps.push_back(step);
  auto id = dispatcher().begin(std::move(plan), step, clock.now());
  if (!id) throw std::runtime_error(id.error().to_string());
  step->id = *id;
  return *step;
}

inline Nanos Rig::turn() {
  const Nanos now = clock.now();
  Completion done[64];
  PlaceDone placed[64];
  // Both until nothing comes: a copy without delay is done in the turn of its read.
  for (bool moved = true; moved;) {
    moved = false;
    for (SourceId s = 0; s < tiers.size(); ++s)
      while (const std::size_t count = tiers[s]->poll(done)) {
        for (std::size_t i = 0; i < count; ++i) dispatcher().on_read_complete(s, done[i], now);
        moved = true;
      }
    while (const std::size_t count = placer.poll(placed)) {
      for (std::size_t i = 0; i < count; ++i) dispatcher().on_placed(placed[i], now);
      moved = true;
    }
  }
  wake = dispatcher().timers(now);
  wake = std::min(wake, dispatcher().claims(now));
  wake = std::min(wake, placer.next_event());
  for (const auto& tier : tiers) wake = std::min(wake, tier->next_event());
  return wake;
}

inline bool Rig::run(const std::function<bool()>& until, Nanos latest, std::size_t turns_max) {
  turn();
  for (std::size_t turns = 0; !until(); ++turns) {
    const Nanos next = std::min(wake, latest);
    if (next == kNever || turns > turns_max) return false;
    if (clock.now() >= latest) return true;
    clock.set(std::max(next, clock.now() + 1));
    turn();
  }
  return true;
}

inline bool Rig::drain() {
  for (const auto& tier : tiers) tier->flush();
  placer.delay = 0;
  clock.advance(kSecond);
  for (int i = 0; i < 1000 && !dispatcher().idle(); ++i) {
    for (const auto& tier : tiers) tier->flush();
    turn();
    clock.advance(kMillisecond);
  }
  const bool all_drained = std::all_of(steps.begin(), steps.end(), [](const auto& step) {
    return step->left == 0 && step->drained != kNever;
  });
  bool windows_empty = true;
  for (const auto& device : devices)
    windows_empty =
        windows_empty && device->bytes_in_flight() == 0 && device->reads_in_flight() == 0;
  return dispatcher().idle() && all_drained && windows_empty && host.holds == 0 &&
         pool.free_count() == pool.count();
}

}  // namespace kvstream::rig
