// vLLM V1's scheduler, as far as a storage engine can feel it. Pure: no clock, no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kvstream/status.hpp"
#include "replay/batch.hpp"
#include "replay/device_kv.hpp"
#include "replay/trace.hpp"

namespace kvstream {

/// When loads of a batch must be there: before its forward pass, or whenever they come.
enum class LoadMode : std::uint8_t { kSync, kAsync };

struct SchedulerOptions {
  std::uint32_t token_budget = 8192;  ///< tokens computed in a step
  std::uint32_t sequences_max = 256;  ///< running at a time
  bool chunked_prefill = true;        ///< off: a prompt is computed in one step or waits
  LoadMode load_mode = LoadMode::kSync;
  DeviceKv::Options kv;
};

/// Decides what each step computes and loads. Turn by turn: schedule(), in sync mode loaded() for
/// each of its loads, forward_ended(). arrive() at any time; in async mode loaded() too.
/// Owned by the loop that drives it; one thread. Bounded by the list of requests.
class Scheduler {
 public:
  static Result<Scheduler> open(const SchedulerOptions& options,
                                std::span<const TraceRequest> requests);

  /// Queues a request, last. kNoSpace: it can never fit the device's KV; kInvalidArgument: it has
  /// no tokens, or more keys than blocks. Rejected ones are counted and otherwise forgotten.
  Status arrive(RequestIndex request);
  /// The next step; valid until the next call. Where it has no work, forward_ended() need not
  /// follow; call again after an arrival, a loaded() or when a pending answer may be there.
  const Batch& schedule(ExternalCache& external);
  /// `usable_blocks` leading blocks of those wanted are on the device; the rest is computed.
  /// A sync load that was not reported by forward_ended() counts as failed.
  void loaded(RequestIndex request, std::uint32_t usable_blocks);
  /// The forward pass over the last batch is over; valid until the next call.
  const Ended& forward_ended();

  /// Requests that arrived and have not finished.
  std::uint32_t unfinished() const {
    return static_cast<std::uint32_t>(waiting_.size() + running_.size());
  }
  std::uint32_t running() const { return static_cast<std::uint32_t>(running_.size()); }
  std::uint32_t waiting() const { return static_cast<std::uint32_t>(waiting_.size()); }
  std::uint32_t loading() const { return loading_; }  ///< async, of those waiting
  const SchedulerAccounts& accounts() const { return accounts_; }
  const DeviceKv& kv() const { return kv_; }

 private:
  enum class Stage : std::uint8_t { kAbsent, kWaiting, kLoading, kLoaded, kRunning, kFinished };
  enum class Admission : std::uint8_t { kRuns, kAside, kPassedOver, kStops };
  static constexpr std::uint32_t kNoLimit = 0xffff'ffff;

  struct Sequence {
    Stage stage = Stage::kAbsent;
    bool counted = false;       ///< its prompt is in the accounts
    bool fresh = false;         ///< admitted in this step
    bool asks_external = true;  ///< not again after a load that brought nothing
    std::uint32_t outputs = 0;
    std::uint32_t computed = 0;       ///< tokens whose KV is there before the next pass
    std::uint32_t computed_max = 0;   ///< ever, over preemptions
    std::uint32_t device_tokens = 0;  ///< of `computed`, found on the device at admission
    std::uint32_t known_blocks = 0;   ///< leading blocks that were cached, or reported as computed
    WantedLoad load;                  ///< of this admission; count 0: none
    std::uint32_t usable_blocks = 0;  ///< of `load`
    std::uint32_t valid_blocks = kNoLimit;  ///< sync, in this step: what a failed load left
    DeviceKv::Hold hold;
  };
  /// What the look-ups at an admission have found.
  struct Found {
    std::uint32_t device_blocks = 0;
    std::uint32_t device_tokens = 0;
    std::uint32_t blocks = 0;    ///< with those of the external cache
    std::uint32_t computed = 0;  ///< tokens that need no computing then
  };

  Scheduler(const SchedulerOptions& options, std::span<const TraceRequest> requests, DeviceKv kv);

  std::uint32_t tokens(RequestIndex request) const;
  std::span<const BlockKey> full_keys(RequestIndex request) const;
  std::uint32_t tokens_in(RequestIndex request, std::uint32_t blocks) const;
  std::uint64_t reserved_pages() const;
  bool fits_step(std::uint32_t missing_tokens, std::uint32_t budget) const;

  void schedule_running(std::uint32_t& budget);
  Admission schedule_waiting(std::uint32_t& budget, ExternalCache& external);
  Admission admit(RequestIndex request, std::uint32_t& budget, ExternalCache& external);
  Admission admit_found(RequestIndex request, const Found& found, std::uint32_t& budget);
  Admission start(RequestIndex request, std::uint32_t& budget);
  void run(RequestIndex request, std::uint32_t& budget);
  void publish(RequestIndex request, std::uint32_t tokens);
  void preempt(RequestIndex request);
  bool drop_last_loaded();

  void settle_loads();
  static std::uint32_t valid_beside(const Sequence& sequence, const Sequence& other);
  void advance(const ScheduledWork& work);
  void fall_back(const ScheduledWork& work);
  void report_whole_blocks(RequestIndex request);

  SchedulerOptions options_;
  std::span<const TraceRequest> requests_;
  DeviceKv kv_;
  std::vector<Sequence> sequences_;  ///< one a request
  std::deque<RequestIndex> waiting_;
  std::vector<RequestIndex> running_;
  std::uint32_t loading_ = 0;
  Batch batch_;
  Ended ended_;
  SchedulerAccounts accounts_;
};

}  // namespace kvstream
