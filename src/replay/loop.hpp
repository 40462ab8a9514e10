// The plain replay loop of one rank: admit, load, forward pass, save.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kvstream/engine.hpp"
#include "replay/step_memory.hpp"
#include "replay/trace.hpp"

namespace kvstream {

/// Closed: the next batch when the last has ended. Trace: requests come at their own times.
enum class Arrivals : std::uint8_t { kClosed, kTrace };
enum class Verify : std::uint8_t { kOff, kOn };

struct LoopOptions {
  BlockShape shape;
  std::uint32_t batch = 8;  ///< requests a step, at most
  Arrivals arrivals = Arrivals::kClosed;
  double time_scale = 1.0;                ///< time here / time represented; arrivals shrink by it
  double prefill_tokens_per_s = 400'000;  ///< of this rank, here
  double decode_tokens_per_s = 60'000;
  Verify verify = Verify::kOn;
  Nanos step_deadline_ns = 30 * kSecond;
  /// Saves that somebody waits for are offered in parts of this size, so that the engine's bounded
  /// queue drops none of them.
  std::uint64_t waited_save_bytes = 16U << 20U;
  const Clock* clock = nullptr;
  const std::atomic<bool>* stop = nullptr;  ///< set by a signal; looked at ten times a second
};

/// What one rank saw of one side. Times are seconds here (not represented), without what verifying
/// and making payloads took beyond the forward pass they run in.
struct RankRun {
  std::uint32_t requests = 0, steps = 0;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, output_tokens = 0;
  std::uint64_t cached_device_tokens = 0;  ///< found in the device's own prefix cache
  std::uint64_t lost_tokens = 0;           ///< of prompts, dropped by preemption
  std::uint64_t recomputed_output_tokens = 0, preemptions = 0;
  std::uint64_t rejected = 0;      ///< requests that the device's KV can never hold
  std::uint64_t blocks_asked = 0;  ///< in look-ups, found or not
  std::uint64_t hits = 0, misses = 0, late = 0, cancelled = 0;
  std::uint64_t usable_blocks = 0;  ///< hits that no hole made useless
  std::uint64_t bytes_verified = 0, wrong_bytes = 0;
  double verify_cpu_s = 0, fill_cpu_s = 0;
  std::vector<double> ttft_s, e2e_s, tpot_s, step_read_s;
  double elapsed_s = 0, excluded_s = 0, forward_s = 0;
  double read_wait_s = 0;   ///< the loop stood still for reads
  double write_wait_s = 0;  ///< ... for writes (inline, after-forward)
  double idle_s = 0;        ///< ... for arrivals
  Nanos started_at = 0, ended_at = 0;
  EngineStats before, after;  ///< after: when the deferred writes had ended too
  bool at_rest = false;       ///< they did, in time
  bool interrupted = false;
  std::vector<StepRecord> records;  ///< with Settings::record_steps
};

/// One rank's requests against one engine, as often as wanted. One thread.
class ReplayLoop {
 public:
  /// `requests` (this rank's own, in order) and the engine outlive the loop.
  static Result<std::unique_ptr<ReplayLoop>> open(Engine& engine,
                                                  std::span<const TraceRequest> requests,
                                                  const LoopOptions& options);

  /// Plays all requests under `mode`. Errors are the harness's own; misses and wrong bytes are
  /// counted. `on_progress` hears how many requests are done.
  Result<RankRun> play(const Mode& mode, const std::function<void(std::uint32_t)>& on_progress);

 private:
  struct Step;
  ReplayLoop(Engine& engine, std::span<const TraceRequest> requests, const LoopOptions& options)
      : engine_(engine), requests_(requests), options_(options) {}

  std::size_t admit(std::size_t next);
  Status run_step(std::span<const TraceRequest> batch);
  void look_up(Step& step);
  Status load(Step& step);
  void count_load(Step& step);
  Status forward(Step& step);
  void verify(Step& step);
  void fill(Step& step);
  Status save_and_wait(Step& step);
  Status save(Step& step);
  Status offer(Step& step, std::span<const SaveBlock> blocks);
  Status offer_in_parts(Step& step, std::span<const SaveBlock> blocks);
  Status settle_all();
  Status settle_waited(const SaveTicket& ticket);
  void pass_until(Nanos when);
  Nanos elapsed() const;
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  Engine& engine_;
  std::span<const TraceRequest> requests_;
  LoopOptions options_;
  std::unique_ptr<StepMemory> memory_;
  Mode mode_;
  RankRun run_;
  Nanos excluded_ = 0;
  std::vector<SaveTicket> open_saves_;
};

/// Bytes of the largest step, blocks aligned as the loop lays them out.
std::uint64_t largest_step_bytes(std::span<const TraceRequest> requests, std::uint32_t batch);

}  // namespace kvstream
