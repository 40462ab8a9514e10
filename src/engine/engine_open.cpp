#include <fmt/format.h>

#include <algorithm>

#include "core/logging.hpp"
#include "core/units.hpp"
#include "engine/abandoned.hpp"
#include "engine/engine_impl.hpp"

namespace kvstream {
namespace {

constexpr double kPriorRate = 1e9;        // bytes/s, until something was measured
constexpr double kPriorMemoryRate = 5e9;  // the same, of memory
constexpr std::uint32_t kSlabsPerSourceMin = 2;

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(Options options, std::vector<TierPart> tiers) {
  auto engine = std::make_unique<EngineImpl>(std::move(options));
  if (const Status status = engine->start(std::move(tiers)); !status.is_ok()) {
    return failure(status);
  }
  return std::unique_ptr<Engine>(std::move(engine));
}

Result<std::unique_ptr<DrivenEngine>> DrivenEngine::open(Options options,
                                                         std::vector<TierPart> tiers,
                                                         std::unique_ptr<Copies> copies) {
  auto engine = std::make_unique<EngineImpl>(std::move(options), std::move(copies));
  if (const Status status = engine->start(std::move(tiers)); !status.is_ok()) {
    return failure(status);
  }
  return std::unique_ptr<DrivenEngine>(std::move(engine));
}

EngineImpl::EngineImpl(Options options, std::unique_ptr<Copies> driven)
    : options_(std::move(options)),
      clock_(options_.context.clock != nullptr ? *options_.context.clock : SteadyClock::instance()),
      driven_(driven != nullptr),
      copies_(std::move(driven)) {
  options_.context.clock = &clock_;
  options_.context.block_bytes_max = options_.settings.block_bytes_max;
}

EngineImpl::~EngineImpl() { close(clock_.now() + 10 * kSecond); }

Status EngineImpl::start(std::vector<TierPart> parts) {
  if (parts.empty()) {
    return {Code::kInvalidArgument,
            "no tier is configured; give at least one (--tier NAME=KIND:PATH)"};
  }
  if (parts.size() > kTiersMax) {
    return {Code::kInvalidArgument, fmt::format("{} tiers are configured; at most {} are possible",
                                                parts.size(), kTiersMax)};
  }
  if (!driven_) find_place();
  const ScopedBinding binding(placement_);  // threads and memory made from here on follow it
  if (Status status = open_pools(); !status.is_ok()) return status;
  if (read_slabs_->count() < kSlabsPerSourceMin * parts.size()) {
    return {Code::kInvalidArgument,
            fmt::format("pool = {} gives {} staging slabs of {}, but {} tiers need {} at "
                        "least; raise pool or lower block-max",
                        format_size(options_.settings.pool_bytes), read_slabs_->count(),
                        format_size(read_slabs_->slab_bytes()), parts.size(),
                        kSlabsPerSourceMin * parts.size())};
  }
  for (auto& part : parts) {
    if (Status status = open_tier(part); !status.is_ok()) return status;
  }
  auto active = make_active(options_.mode);
  if (!active) return active.error();
  active_ = std::move(*active);
  open_devices();
  open_loop();
  return Status::ok();
}

void EngineImpl::find_place() {
  const auto topology = Topology::open();
  if (!topology) return;
  const auto& context = options_.context;
  auto placement = (*topology)->place(context.local_rank, context.local_ranks);
  if (!placement) return;
  placement_ = std::move(*placement);
  logger("engine").info("placement: {}", describe(placement_));
}

Status EngineImpl::open_pools() {
  const auto& settings = options_.settings;
  const auto write_bytes = settings.write_queue_bytes_max != 0 ? settings.write_queue_bytes_max
                                                               : settings.pool_bytes / 4;
  if (write_bytes >= settings.pool_bytes) {
    return {Code::kInvalidArgument,
            fmt::format("write-queue-max = {} leaves nothing of pool = {} for reads",
                        format_size(write_bytes), format_size(settings.pool_bytes))};
  }
  const auto backing = driven_ ? BufferPool::Backing::kNone : BufferPool::Backing::kMemory;
  const auto block = settings.block_bytes_max;
  auto reads =
      BufferPool::open({settings.pool_bytes - write_bytes, block, placement_.numa_node, backing});
  if (!reads) return reads.error();
  auto writes = BufferPool::open({write_bytes, block, placement_.numa_node, backing});
  if (!writes) return writes.error();
  read_slabs_ = std::move(*reads);
  write_slabs_ = std::move(*writes);
  staging_.resize(write_slabs_->count());
  return Status::ok();
}

Status EngineImpl::open_tier(TierPart& part) {
  auto made = part.make(part.spec, options_.context);
  if (!made) return made.error();
  TierSeat seat;
  seat.spec = part.spec;
  AdaptedTier adapted = adapt(std::move(*made), clock_);
  seat.adapter = adapted.adapter;
  seat.tier = std::move(adapted.tier);
  if (part.wrap) {
    auto wrapped = part.wrap(std::move(seat.tier));
    if (!wrapped) return wrapped.error();
    seat.tier = std::move(*wrapped);
  }
  seats_.push_back(std::move(seat));
  return Status::ok();
}

void EngineImpl::open_devices() {
  for (auto& seat : seats_) {
    const auto& traits = seat.tier->traits();
    const auto known = std::find_if(devices_.begin(), devices_.end(), [&](const auto& device) {
      return device->options().id == traits.device_id;
    });
    if (known != devices_.end()) {
      seat.device = known->get();
      continue;
    }
    Device::Options device;
    device.id = traits.device_id;
    device.block_bytes = options_.settings.block_bytes_max;
    device.prior_rate_bytes_per_s = traits.addressable ? kPriorMemoryRate : kPriorRate;
    device.prior_latency_ns = traits.addressable ? 20 * kMicrosecond : kMillisecond;
    device.in_flight_max = traits.in_flight_max;
    devices_.push_back(std::make_unique<Device>(device));
    seat.device = devices_.back().get();
  }
}

void EngineImpl::open_loop() {
  const auto& settings = options_.settings;
  Catalog::Options catalog;
  catalog.entries_max = settings.catalog_entries_max;
  catalog.leases_max = settings.leases_max;
  catalog.tiers = static_cast<std::uint32_t>(seats_.size());
  catalog_ = std::make_unique<Catalog>(catalog);
  if (!driven_) {
    copies_ = std::make_unique<CopyThreads>(
        settings.copy_threads, read_slabs_->count() + write_slabs_->count() + 4096, *wake_);
  }
  std::vector<StepDispatcher::Source> sources;
  std::vector<WriteBackPump::Target> targets;
  for (auto& seat : seats_) {
    sources.push_back({seat.tier.get(), seat.device});
    targets.push_back({seat.tier.get(), seat.device});
    target_views_.push_back({true, seat.tier->traits().persistent});
  }
  StepDispatcher::Options dispatcher;
  dispatcher.landing = settings.landing;
  dispatcher.hedge = settings.hedge;
  dispatcher.record = settings.record_steps;
  DispatcherHost& dispatcher_host = *this;
  PumpHost& pump_host = *this;
  dispatcher_ = std::make_unique<StepDispatcher>(dispatcher, sources, *read_slabs_, *copies_,
                                                 dispatcher_host);
  pump_ = std::make_unique<WriteBackPump>(WriteBackPump::Options{}, targets, *catalog_, pump_host);
  // What recovery found is known before the first look-up.
  for (std::uint8_t tier = 0; tier < seats_.size(); ++tier) take_changes(tier);
  if (!driven_) open_threads();
}

void EngineImpl::open_threads() {
  for (std::uint8_t tier = 0; tier < seats_.size(); ++tier) {
    seats_[tier].chores = std::make_unique<ChoreThread>(*seats_[tier].tier, wake_);
    logger("engine").info("tier {}: {}, {}, capacity {}", seats_[tier].spec.name,
                          seats_[tier].tier->traits().kind, seats_[tier].tier->report().mode,
                          format_size(seats_[tier].tier->report().capacity_bytes));
  }
  probe_at_open();
  progress_ = std::thread([this] { run(); });
}

Result<std::shared_ptr<const ActiveMode>> EngineImpl::make_active(const Mode& mode) const {
  auto active = std::make_shared<ActiveMode>();
  active->mode = mode;
  if (mode.claim_blocks == 0) {
    return failure(Code::kInvalidArgument, "claim-blocks = 0: a claim takes one block at least");
  }
  if (mode.use_tiers.empty()) active->tiers = (std::uint64_t{1} << (seats_.size() - 1) << 1) - 1;
  for (const auto& name : mode.use_tiers) {
    const auto seat = std::find_if(seats_.begin(), seats_.end(),
                                   [&](const auto& s) { return s.spec.name == name; });
    if (seat == seats_.end()) {
      std::string known;
      for (const auto& s : seats_) known += (known.empty() ? "" : ", ") + s.spec.name;
      return failure(Code::kInvalidArgument,
                     fmt::format("use-tiers names \"{}\", but the tiers are {}", name, known));
    }
    active->tiers |= std::uint64_t{1} << (seat - seats_.begin());
  }
  return std::shared_ptr<const ActiveMode>(std::move(active));
}

CloseReport EngineImpl::close(Nanos deadline) {
  const std::lock_guard lock(close_mutex_);
  CloseReport report;
  if (!progress_.joinable() && copies_ == nullptr) return report;
  closing_ = true;
  if (driven_) last_stats_ = collect_stats();
  stopped_ = stopped_ || driven_;
  if (progress_.joinable()) {
    call([this](Nanos now) {
      for (const auto& [id, ticket] : steps_) dispatcher_->cancel(id, now);
    });
    bool idle = false;
    while (!idle && clock_.now() < deadline) {
      call([&](Nanos) { idle = this->idle(); });
      if (!idle) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!idle) call([this](Nanos now) { pump_->drop_queued(now); });
    stop_progress();
  }
  const Nanos left = std::max<Nanos>(deadline - clock_.now(), 200 * kMillisecond);
  for (auto& seat : seats_) {
    if (seat.chores && !seat.chores->close(left)) report.abandoned = true;
    if (seat.adapter != nullptr && !seat.adapter->close(left)) report.abandoned = true;
  }
  const auto in_use = read_slabs_->count() - read_slabs_->free_count() + write_slabs_->count() -
                      write_slabs_->free_count();
  if (!driven_ && (last_stats_.reads_in_flight > 0 || pump_->in_flight() > 0 || probing())) {
    report.abandoned = true;
  }
  if (copies_) copies_->close();
  if (report.abandoned) {
    // A device or a stuck thread may still touch the slabs, the arenas and the tiers: they stay.
    report.slabs_abandoned = in_use;
    read_slabs_->abandon();
    write_slabs_->abandon();
    for (auto& seat : seats_) {
      abandon(std::shared_ptr<void>(std::move(seat.tier)));
      abandon(std::shared_ptr<void>(std::move(seat.chores)));
    }
    abandon(wake_);
    logger("engine").error(
        "close: work was still in the kernel at the deadline; {} slabs stay mapped", in_use);
  }
  copies_.reset();
  if (!report.abandoned) dispatcher_.reset();  // else it still names the destinations held
  pump_.reset();
  seats_.clear();
  return report;
}

void EngineImpl::stop_progress() {
  stopping_.store(true, std::memory_order_release);
  wake_->ring();
  progress_.join();
}

}  // namespace kvstream
