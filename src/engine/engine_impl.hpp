// The engine behind include/kvstream/engine.hpp.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "catalog/catalog.hpp"
#include "core/bounded_queue.hpp"
#include "core/event_fd.hpp"
#include "device/device.hpp"
#include "engine/chore_thread.hpp"
#include "engine/copy_threads.hpp"
#include "engine/driven_engine.hpp"
#include "engine/threaded_tier.hpp"
#include "engine/tickets.hpp"
#include "kvstream/engine.hpp"
#include "memory/buffer_pool.hpp"
#include "memory/device.hpp"
#include "step/dispatcher.hpp"
#include "topology/topology.hpp"
#include "writeback/pump.hpp"
#include "writeback/replication_policy.hpp"

namespace kvstream {

/// Mode as the threads use it: immutable, swapped whole.
struct ActiveMode {
  Mode mode;
  std::uint64_t tiers = 0;  ///< mask of those in use
};

/// Id of a probe's read; those of the dispatcher stay below.
inline constexpr std::uint64_t kProbeId = std::uint64_t{1} << 62;

/// Puts the parts together and owns every thread. The progress thread alone touches dispatcher,
/// pump, devices and tiers (but for chores and reports); other threads post commands to it.
class EngineImpl final : public DrivenEngine, private DispatcherHost, private PumpHost {
 public:
  /// With `driven` there are no threads: the caller is the progress thread.
  explicit EngineImpl(Options options, std::unique_ptr<Copies> driven = nullptr);
  ~EngineImpl() override;

  Status start(std::vector<TierPart> parts);

  Status register_buffer(Span memory) override;
  std::vector<LookupAnswer> lookup(std::span<const LookupRequest> requests) override;
  void release(LeaseToken lease) override;
  Result<Ticket> load_step(const StepRequest& request) override;
  Status cancel(const Ticket& ticket, Nanos deadline) override;
  std::vector<Span> held(const Ticket& ticket) const override;
  SaveTicket save_step(const SaveRequest& request) override;
  int event_fd() const override { return tickets_ended_->fd(); }
  Status set_mode(const Mode& mode) override;
  std::vector<ContentEntry> contents() const override;
  void drop(std::span<const BlockKey> keys, std::uint64_t tiers) override;
  void touch(std::span<const BlockKey> keys) override;
  Status refresh(Nanos deadline) override;
  EngineStats stats() const override;
  std::vector<StepRecord> take_step_records() override;
  CloseReport close(Nanos deadline) override;
  Nanos turn() override;
  bool idle() const override;

 private:
  /// Lone reads that tell a device's latency: at open, and later while nothing else is to do.
  struct LatencyProbe {
    std::optional<KeyedReplica> target;  ///< held while a probe is in flight
    std::byte* slab = nullptr;
    Span into;
    Nanos submitted_at = 0;
    std::uint32_t done = 0;
  };
  /// One tier with what belongs to it.
  struct TierSeat {
    TierSpec spec;
    std::unique_ptr<Tier> tier;
    ThreadedTier* adapter = nullptr;  ///< inside `tier`, when it is a blocking one
    Device* device = nullptr;
    std::unique_ptr<ChoreThread> chores;
    std::uint64_t recycled = 0, bad = 0;
    LatencyProbe probe;
  };
  /// A block between save_step and the pump; its index is that of its slab.
  struct Staging {
    std::shared_ptr<SaveState> ticket;
    std::size_t index = 0;  ///< of the block in its request
    NewBlock block;
    WriteTargets targets;
  };
  using Command = std::function<void(Nanos now)>;

  // engine_open.cpp
  void find_place();
  Status open_pools();
  Status open_tier(TierPart& part);
  void open_devices();
  void open_loop();
  void open_threads();
  Result<std::shared_ptr<const ActiveMode>> make_active(const Mode& mode) const;

  // engine.cpp
  bool post(Command command) const;
  /// Runs `command` on the progress thread and waits for it; false when the engine is closed.
  bool call(const Command& command) const;
  bool stage_one(const SaveBlock& block, std::size_t index, const WriteTargets& targets,
                 const std::shared_ptr<SaveState>& ticket);
  void begin_step(StepPlan plan, const std::shared_ptr<TicketState>& ticket,
                  const std::shared_ptr<const ActiveMode>& active, Nanos now);

  // progress_loop.cpp
  void run();
  void run_commands(Nanos now);
  void poll_tier(std::uint8_t tier, Nanos now);
  void poll_copies(Nanos now);
  void take_changes(std::uint8_t tier);
  void apply_change(std::uint8_t tier, const CatalogChange& change);
  void free_retracted();
  Nanos slow_timers(Nanos now);
  void sleep_until(Nanos wake);
  void stop_progress();

  // latency_probe.cpp
  bool probing() const;
  void probe_at_open();
  void probe_when_idle(Nanos now);
  bool start_probe(std::uint8_t tier, Nanos now);
  void on_probe_complete(std::uint8_t tier, const Completion& done, Nanos now);

  // DispatcherHost, PumpHost
  void on_unhold(const BlockKey& key, const Replica& replica) override;
  void on_mismatch(const BlockKey& key, const Replica& replica) override;
  void on_hit(const BlockKey& key, SourceId served) override;
  void on_written(const PumpBlock& block, std::uint32_t copies) override;
  void on_slots_wanted(std::uint8_t tier) override;
  bool reads_wait(std::uint8_t tier) const override;

  EngineStats collect_stats() const;

  Options options_;
  const Clock& clock_;
  Placement placement_;
  std::shared_ptr<EventFd> wake_ = std::make_shared<EventFd>();
  std::shared_ptr<EventFd> tickets_ended_ = std::make_shared<EventFd>();  ///< event_fd()
  std::unique_ptr<BufferPool> read_slabs_, write_slabs_;
  std::vector<Staging> staging_;  ///< one a write slab
  std::vector<TierSeat> seats_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Catalog> catalog_;
  const bool driven_;
  std::unique_ptr<Copies> copies_;
  std::unique_ptr<StepDispatcher> dispatcher_;
  std::unique_ptr<WriteBackPump> pump_;
  std::shared_ptr<const ActiveMode> active_;  ///< by std::atomic_load / std::atomic_store
  std::vector<TargetView> target_views_;
  std::unordered_map<StepId, std::weak_ptr<TicketState>> steps_;  ///< progress thread

  mutable BoundedQueue<Command> commands_{4096};
  std::thread progress_;
  std::atomic<bool> closing_{false}, stopping_{false}, stopped_{false};
  std::atomic<std::uint64_t> looked_up_{0}, never_loaded_{0}, offered_{0}, published_{0},
      dropped_{0};
  std::atomic<std::int64_t> staging_count_{0};
  Nanos next_slow_timers_ = 0;
  std::mutex pins_mutex_;
  std::vector<HostPin> pins_;
  mutable std::mutex close_mutex_;
  EngineStats last_stats_;
};

}  // namespace kvstream
