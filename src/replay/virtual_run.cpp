#include "replay/virtual_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/checksum.hpp"
#include "engine/driven_engine.hpp"
#include "memory/mapping.hpp"
#include "replay/model_tier.hpp"

namespace kvstream {
namespace {

constexpr Nanos kStart_ns = 10 * kSecond;  // so that no time is ever below 0
constexpr Nanos kProbe_ns = 2 * kSecond;   // engines learn latencies while they have nothing to do
constexpr Nanos kDrain_ns = 3600 * kSecond;
constexpr std::uint64_t kProgressEvery = 4096;
constexpr std::uint32_t kRoundsAtOnce = 64;
constexpr std::uint64_t kEventsAtOnceMax = 1'000'000;  // at one time: more is a fault, no work
constexpr const char* kStandsStill = "virtual time stands still: nothing more can happen";

std::uint32_t count_ranks(const VirtualOptions& options) {
  return static_cast<std::uint32_t>(options.node_of_rank.size());
}

/// Engines that share a tier's cap with this rank's, itself included.
std::uint32_t writers_of(const VirtualOptions& options, const VirtualTier& tier,
                         std::uint32_t rank) {
  const auto& nodes = options.node_of_rank;
  switch (tier.visibility) {
    case Visibility::kRank:
      return options.shards;
    case Visibility::kNode:
      return options.shards *
             static_cast<std::uint32_t>(std::count(nodes.begin(), nodes.end(), nodes[rank]));
    case Visibility::kJob:
      return options.shards * count_ranks(options);
  }
  return 1;
}

std::uint64_t slot_bytes(const VirtualOptions& options) {
  return round_up(options.settings.block_bytes_max, kSmallPageBytes);
}

std::string hash_of(const std::vector<std::vector<BlockPlace>>& places) {
  std::vector<BlockKey> keys;
  for (const auto& rank : places) {
    for (const auto& place : rank) keys.push_back(place.key);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return fmt::format("{:016x}:{}", checksum(std::as_bytes(std::span(keys))), keys.size());
}

class Cluster {
 public:
  Cluster(const VirtualOptions& options, const VirtualWork& work)
      : options_(options), work_(work), slow_(options.slow) {
    clock_.set(kStart_ns);
    std::stable_sort(slow_.begin(), slow_.end(),
                     [](const SlowEvent& a, const SlowEvent& b) { return a.at_ns < b.at_ns; });
  }

  Status open(const Mode& mode);
  Status play(const Mode& mode);
  VirtualOutcome outcome();

 private:
  struct Seat {
    std::vector<std::unique_ptr<DrivenEngine>> engines;  ///< by shard
    std::vector<EngineStats> before;
    std::unique_ptr<ServingLoop> loop;
    Nanos due = 0;
    Nanos loop_due = 0;  ///< of `due`, what the loop itself waits for
  };

  std::size_t device_of(std::size_t tier, std::uint32_t rank);
  Result<std::unique_ptr<DrivenEngine>> open_engine(std::uint32_t rank, std::uint32_t shard,
                                                    const Mode& mode);
  Status probe();
  bool advance(Nanos due);
  Nanos step(Seat& seat);
  Nanos next_due() const;
  void apply_slow();
  bool all_done() const;
  bool all_idle() const;
  bool stands_still() const;

  const VirtualOptions& options_;
  const VirtualWork& work_;
  FakeClock clock_;
  std::vector<std::unique_ptr<ModelDevice>> devices_;
  std::vector<std::size_t> tier_of_device_;
  std::vector<std::unique_ptr<ModelStore>> stores_;
  std::vector<Seat> seats_;
  std::vector<SlowEvent> slow_;  ///< in order of time
  std::size_t next_slow_ = 0;
  std::uint64_t events_at_once_ = 0;
  Nanos begun_ = kNever, end_ = 0;
};

std::size_t Cluster::device_of(std::size_t tier, std::uint32_t rank) {
  const VirtualTier& what = options_.tiers[tier];
  std::string where = fmt::format("node{}", options_.node_of_rank[rank]);
  if (what.visibility == Visibility::kJob) where = "job";
  if (is_per_rank(what)) where = fmt::format("rank{}", rank);
  const std::string id = fmt::format("{}:{}", what.spec.name, where);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->id() == id) return i;
  }
  devices_.push_back(std::make_unique<ModelDevice>(id, what.model));
  tier_of_device_.push_back(tier);
  return devices_.size() - 1;
}

Result<std::unique_ptr<DrivenEngine>> Cluster::open_engine(std::uint32_t rank, std::uint32_t shard,
                                                           const Mode& mode) {
  std::vector<TierPart> parts;
  const auto& places = work_.places.empty() ? std::vector<BlockPlace>{} : work_.places[rank];
  for (std::size_t tier = 0; tier < options_.tiers.size(); ++tier) {
    const VirtualTier& what = options_.tiers[tier];
    auto made = stores_[tier]->open(options_.node_of_rank[rank], writers_of(options_, what, rank),
                                    *devices_[device_of(tier, rank)], clock_);
    for (const BlockPlace& place : places) {
      if ((place.tiers >> tier & 1) == 0) continue;
      const std::uint64_t bytes = place.size_bytes;
      if (!made->preload(shard_key(place.key, shard), static_cast<std::uint32_t>(bytes))) break;
    }
    // The factory is called once.
    auto box = std::make_shared<std::unique_ptr<ModelTier>>(std::move(made));
    parts.push_back({what.spec,
                     [box](const TierSpec&, const TierContext&) -> Result<AnyTier> {
                       return AnyTier(std::unique_ptr<Tier>(std::move(*box)));
                     },
                     {}});
  }
  TierContext context;
  context.rank = rank * options_.shards + shard;
  context.ranks = count_ranks(options_) * options_.shards;
  context.clock = &clock_;
  return DrivenEngine::open({options_.settings, mode, context}, std::move(parts),
                            std::make_unique<ModelCopies>(options_.copies, clock_));
}

Status Cluster::open(const Mode& mode) {
  for (const VirtualTier& tier : options_.tiers) {
    stores_.push_back(std::make_unique<ModelStore>(ModelStore::Options{
        tier.spec, tier.visibility, options_.settings.block_bytes_max, options_.follow_period_ns}));
  }
  ServingOptions serving = options_.serving;
  serving.clock = &clock_;
  serving.backing = BufferPool::Backing::kNone;
  serving.verify = Verify::kOff;
  serving.stop = options_.stop;
  for (std::uint32_t rank = 0; rank < count_ranks(options_); ++rank) {
    Seat seat;
    std::vector<ServingShard> shards;
    for (std::uint32_t shard = 0; shard < options_.shards; ++shard) {
      auto engine = open_engine(rank, shard, mode);
      if (!engine) return engine.error();
      seat.engines.push_back(std::move(*engine));
      shards.push_back({seat.engines.back().get(), work_.requests[rank][shard]});
    }
    auto loop = ServingLoop::open(std::move(shards), serving);
    if (!loop) return loop.error();
    seat.loop = std::move(*loop);
    seats_.push_back(std::move(seat));
  }
  return Status::ok();
}

void Cluster::apply_slow() {
  for (; next_slow_ < slow_.size(); ++next_slow_) {
    const SlowEvent& event = slow_[next_slow_];
    if (begun_ + event.at_ns > clock_.now()) return;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (options_.tiers[tier_of_device_[i]].spec.name == event.tier) {
        devices_[i]->set_factor(event.factor);
      }
    }
  }
}

/// The engines' turn and the loop's, until neither gives the other anything to do at this time.
Nanos Cluster::step(Seat& seat) {
  Nanos due = kNever;
  for (std::uint32_t round = 0; round < kRoundsAtOnce; ++round) {
    due = kNever;
    for (auto& engine : seat.engines) due = std::min(due, engine->turn());
    const std::uint64_t before = seat.loop->submissions();
    seat.loop_due = seat.loop->act(clock_.now());
    due = std::min(due, seat.loop_due);
    if (seat.loop->submissions() == before) break;
    due = seat.loop_due = clock_.now();
  }
  return due;
}

Nanos Cluster::next_due() const {
  Nanos due = kNever;
  for (const Seat& seat : seats_) due = std::min(due, seat.due);
  if (begun_ != kNever && next_slow_ < slow_.size()) {
    due = std::min(due, begun_ + slow_[next_slow_].at_ns);
  }
  return due;
}

bool Cluster::all_done() const {
  return std::all_of(seats_.begin(), seats_.end(),
                     [](const Seat& seat) { return seat.loop->done(); });
}

/// Loops that wait for engines which have nothing under way: these would tick for ever.
bool Cluster::stands_still() const {
  return all_idle() && std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) {
           return seat.loop->done() || seat.loop_due == kNever;
         });
}

bool Cluster::all_idle() const {
  return std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) {
    return std::all_of(seat.engines.begin(), seat.engines.end(),
                       [](const auto& engine) { return engine->idle(); });
  });
}

/// What a real engine does when it is opened: lone reads tell the latency of each device.
Status Cluster::probe() {
  const Nanos until = clock_.now() + kProbe_ns;
  for (Seat& seat : seats_) seat.due = clock_.now();
  for (Nanos due = next_due(); due <= until; due = next_due()) {
    if (!advance(due)) return {Code::kTimedOut, kStandsStill};
    for (Seat& seat : seats_) {
      if (seat.due > clock_.now()) continue;
      seat.due = kNever;
      for (auto& engine : seat.engines) seat.due = std::min(seat.due, engine->turn());
    }
  }
  clock_.set(until);
  return Status::ok();
}

bool Cluster::advance(Nanos due) {
  events_at_once_ = due > clock_.now() ? 0 : events_at_once_ + 1;
  clock_.set(std::max(due, clock_.now()));
  return events_at_once_ < kEventsAtOnceMax;
}

Status Cluster::play(const Mode& mode) {
  if (Status status = probe(); !status.is_ok()) return status;
  begun_ = clock_.now();
  for (Seat& seat : seats_) {
    for (auto& engine : seat.engines) {
      if (Status status = engine->set_mode(mode); !status.is_ok()) return status;
      seat.before.push_back(engine->stats());
    }
    if (Status status = seat.loop->begin(mode, clock_.now()); !status.is_ok()) return status;
    seat.due = clock_.now();
  }
  std::optional<Nanos> give_up;
  for (std::uint64_t events = 0;; ++events) {
    if (all_done()) {
      if (!give_up) {
        end_ = clock_.now();
        give_up = end_ + kDrain_ns;
      }
      if (all_idle() || clock_.now() > *give_up) return Status::ok();
    }
    const Nanos due = next_due();
    if (due == kNever || (!all_done() && stands_still()) || !advance(due)) {
      return {Code::kTimedOut, kStandsStill};
    }
    apply_slow();
    for (Seat& seat : seats_) {
      if (seat.due <= clock_.now()) seat.due = step(seat);
    }
    if (options_.progress && events % kProgressEvery == 0) {
      std::uint64_t done = 0, all = 0;
      for (const Seat& seat : seats_) done += seat.loop->finished();
      for (const auto& rank : work_.requests) all += rank.front().size();
      options_.progress(done, all);
    }
  }
}

VirtualOutcome Cluster::outcome() {
  VirtualOutcome result;
  result.start = begun_;
  result.end = end_;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const DeviceModel& model = devices_[i]->model();
    const double burst_bytes = model.read_bytes_per_s * static_cast<double>(model.burst_ns) * 1e-9;
    result.devices.push_back(
        {devices_[i]->id(), model.read_bytes_per_s, model.read_bytes_per_s, burst_bytes});
  }
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    Seat& seat = seats_[rank];
    for (std::uint32_t shard = 0; shard < seat.engines.size(); ++shard) {
      DrivenEngine& engine = *seat.engines[shard];
      RankRun run;
      if (shard == 0) run = seat.loop->take_run();
      run.before = seat.before[shard];
      run.at_rest = engine.idle();
      run.after = engine.stats();
      RankSteps steps;
      steps.rank = rank * options_.shards + shard;
      for (std::size_t tier = 0; tier < options_.tiers.size(); ++tier) {
        const std::size_t device = device_of(tier, rank);
        const bool takes_time = devices_[device]->model().read_bytes_per_s > 0;
        steps.device_of_tier.push_back(takes_time ? static_cast<std::uint32_t>(device) : kNoDevice);
      }
      steps.steps = engine.take_step_records();
      result.engines.push_back(std::move(run));
      result.steps.push_back(std::move(steps));
    }
  }
  return result;
}

}  // namespace

bool is_per_rank(const VirtualTier& tier) {
  return tier.visibility == Visibility::kRank && tier.spec.throttle.any();
}

BlockKey shard_key(const BlockKey& key, std::uint32_t shard) {
  BlockKey other = key;
  for (std::size_t i = 0; i < 4; ++i) {
    other.bytes[4 + i] ^= static_cast<std::uint8_t>((shard * 0x9E3779B1U) >> (8 * i));
  }
  return other;
}

VirtualWork prepare_virtual(const VirtualOptions& options, std::span<const TraceRequest> requests,
                            std::span<const TraceRequest> earlier, Replication replication) {
  VirtualWork work;
  work.requests.resize(count_ranks(options));
  for (auto& rank : work.requests) rank.resize(options.shards);
  for (const TraceRequest& request : requests) {
    for (std::uint32_t shard = 0; shard < options.shards; ++shard) {
      auto& mine = work.requests[request.rank % count_ranks(options)][shard];
      mine.push_back(request);
      if (shard == 0) continue;
      for (BlockKey& key : mine.back().keys) key = shard_key(key, shard);
    }
  }
  if (!earlier.empty()) {
    PrefillProblem problem;
    problem.requests = earlier;
    problem.node_of_rank = options.node_of_rank;
    problem.replication = replication;
    for (const VirtualTier& tier : options.tiers) {
      PrefillTier fill{tier.visibility, tier.visibility != Visibility::kRank, 1, {}};
      if (tier.model.write_bytes_per_s > 0) fill.write_weight = tier.model.write_bytes_per_s;
      for (std::uint32_t rank = 0; rank < count_ranks(options); ++rank) {
        fill.slots_of_rank.push_back(tier.spec.cap_bytes / writers_of(options, tier, rank) /
                                     slot_bytes(options));
      }
      problem.tiers.push_back(std::move(fill));
    }
    work.places = simulate_prefill(problem).of_rank;
  }
  work.catalog_hash = hash_of(work.places);
  return work;
}

Result<VirtualOutcome> play_virtual(const VirtualOptions& options, const VirtualWork& work,
                                    const Mode& mode) {
  const auto begun = std::chrono::steady_clock::now();
  Cluster cluster(options, work);
  if (Status status = cluster.open(mode); !status.is_ok()) return failure(status);
  if (Status status = cluster.play(mode); !status.is_ok()) return failure(status);
  VirtualOutcome outcome = cluster.outcome();
  outcome.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return outcome;
}

}  // namespace kvstream
