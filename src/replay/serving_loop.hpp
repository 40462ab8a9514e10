// One rank's serving engine: the scheduler's steps with their loads, forward passes and saves.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvstream/engine.hpp"
#include "memory/buffer_pool.hpp"
#include "replay/loop.hpp"
#include "replay/scheduler.hpp"

namespace kvstream {

struct ServingOptions {
  BlockShape shape;  ///< of one shard
  SchedulerOptions scheduler;
  ForwardModel forward;
  Arrivals arrivals = Arrivals::kClosed;
  std::uint32_t in_system_max = 256;  ///< closed: so many requests are kept in the engine
  double time_scale = 1.0;            ///< time here / time represented
  Verify verify = Verify::kOn;
  Nanos step_deadline_ns = 30 * kSecond;
  Nanos lease_ns = 30 * kSecond;
  std::uint64_t waited_save_bytes = 16U << 20U;  ///< as LoopOptions'
  std::uint32_t block_bytes_max = 0;             ///< of one shard
  /// kNone: no byte is made or compared (virtual time).
  BufferPool::Backing backing = BufferPool::Backing::kMemory;
  const Clock* clock = nullptr;
  const std::atomic<bool>* stop = nullptr;
};

/// Why a comparison under these options has no ceiling (MEASURE section 2); empty: it has one.
std::string no_ceiling_reason(const ServingOptions& options);

/// One tensor-parallel part of a rank: its cache, and the requests with its own keys and sizes.
struct ServingShard {
  Engine* engine = nullptr;
  std::span<const TraceRequest> requests;
};

/// Knows nothing of how time passes: act() does what can be done now and says when it wants to be
/// called again. The same code under real time (play_serving) and virtual time (virtual_run.hpp).
/// Shard 0 decides for all: what every shard has is loaded, by all of them. One thread.
class ServingLoop final : private ExternalCache {
 public:
  /// The shards' engines and requests outlive it. Errors: memory, a device KV that is too small.
  static Result<std::unique_ptr<ServingLoop>> open(std::vector<ServingShard> shards,
                                                   const ServingOptions& options);
  ~ServingLoop() override;

  /// Starts over with all requests; the engines are in `mode` already.
  Status begin(const Mode& mode, Nanos now);
  /// kNever: call again when a ticket of its engines has moved on.
  Nanos act(Nanos now);
  bool done() const { return phase_ == Phase::kDone; }
  std::uint32_t finished() const { return finished_; }
  std::span<const ServingShard> shards() const { return shards_; }
  /// Grows with each load and save that is handed to an engine.
  std::uint64_t submissions() const { return submissions_; }
  /// Makes and compares payloads until `until`; false when there is nothing to do.
  bool work_on_payloads(const Clock& clock, Nanos until);
  /// Sleeps until a ticket that it waits for may have moved on, at most until `until`.
  void wait(const Clock& clock, Nanos until) const;
  /// What it saw, without the engines' statistics; once done. Compares what is left to compare.
  RankRun take_run();

 private:
  enum class Phase : std::uint8_t {
    kReady,     ///< between two steps
    kSettling,  ///< after-forward: the writes of the step before
    kLoading,   ///< sync: the loads of this step
    kForward,
    kSaving,  ///< inline: the writes of this step
    kDone
  };
  struct Lookup {
    std::uint32_t from = 0, blocks = 0;
    Nanos at = 0;
    bool known = false, counted = false;
    std::vector<LeaseToken> leases;  ///< one a shard
  };
  /// One load_step of each shard.
  struct Load {
    std::vector<WantedLoad> wanted;
    std::vector<std::vector<LeaseToken>> leases;  ///< by part, shard
    std::vector<Ticket> tickets;                  ///< by shard; empty: not started
    std::vector<std::vector<std::byte*>> memory;  ///< by shard, block
    std::uint32_t compares = 0;                   ///< blocks still to be compared
    bool counted = false;                         ///< what its tickets said
  };
  struct Compare {
    Load* load = nullptr;
    BlockKey key;
    Span bytes;
  };
  /// A block that this step computes.
  struct NewBlock {
    RequestIndex request = 0;
    std::uint32_t block = 0;
    std::vector<std::byte*> memory;  ///< by shard; empty: not made yet
  };
  struct Saved {
    SaveTicket ticket;
    std::vector<std::byte*> memory;  ///< until it is staged
  };

  ServingLoop(std::vector<ServingShard> shards, const ServingOptions& options);

  // serving_loop.cpp
  Answer matched(RequestIndex request, std::uint32_t from_block) override;
  void release(Lookup& lookup);
  void take_arrivals(Nanos now);
  Nanos next_arrival() const;
  bool begin_step(Nanos now, Nanos& again);
  void begin_forward(Nanos now);
  void end_forward(Nanos now);
  void answer(Nanos now);
  void finish(Nanos now);
  void stop_early(Nanos now);
  Nanos elapsed(Nanos now) const { return now - started_at_ - excluded_; }
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  // serving_loads.cpp
  void start_loads(std::span<const WantedLoad> wanted, Nanos now);
  bool start_or_give_up(Load& load, Nanos now);
  Status start(Load& load, Nanos now);
  void take_finished_loads(Nanos now);
  static bool all_done(const Load& load);
  void end_load(Load& load);
  void compare(const Compare& what);
  void collect_drained();
  /// A slab, if need be after comparing what holds some; null when that was not enough.
  std::byte* take_memory();

  // serving_saves.cpp
  void plan_saves();
  bool make_next();
  /// Offers what was not offered yet; false: call again (a waited-for part has to end first).
  bool offer();
  void offer_some(std::size_t count);
  bool saves_settled();
  void collect_staged();

  std::vector<ServingShard> shards_;
  ServingOptions options_;
  std::unique_ptr<BufferPool> memory_;
  std::unique_ptr<Scheduler> scheduler_;
  Mode mode_;
  RankRun run_;
  Phase phase_ = Phase::kDone;
  Nanos started_at_ = 0, excluded_ = 0, forward_end_ = 0, phase_since_ = 0;
  Nanos idle_since_ = -1;  ///< nothing is running: waiting for arrivals or loads
  bool idle_for_loads_ = false;
  bool lookup_pending_ = false;   ///< an answer of the last schedule() is still out
  const Batch* batch_ = nullptr;  ///< the scheduler's last
  Nanos now_ = 0;                 ///< of the present act()
  std::uint32_t next_ = 0, finished_ = 0;
  std::uint64_t submissions_ = 0;
  std::vector<Nanos> arrived_at_;  ///< elapsed(), one a request
  std::vector<Nanos> first_token_at_;
  std::vector<Lookup> lookups_;
  std::deque<std::unique_ptr<Load>> loads_;     ///< not ended, in order
  std::deque<std::unique_ptr<Load>> draining_;  ///< ended; not compared, or a device may write
  std::deque<Compare> compares_;
  Ended ended_;
  std::vector<NewBlock> fresh_;  ///< of the present step, to be saved
  std::size_t made_ = 0, offered_ = 0;
  std::deque<Saved> saved_;  ///< offered; not staged, or waited for
  absl::flat_hash_set<BlockKey> seen_;
};

/// What a loop of these options takes for the blocks of one shard.
std::uint64_t serving_memory_bytes(const ServingOptions& options);

/// Plays all requests in real time on the calling thread, and waits until the engines are at rest.
/// One a shard: the loop's figures stand at shard 0, its engine's at each.
Result<std::vector<RankRun>> play_serving(ServingLoop& loop, const Mode& mode, const Clock& clock,
                                          const std::function<void(std::uint32_t)>& on_progress);

}  // namespace kvstream
