// The threads that verify, place and stage blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <semaphore>
#include <thread>
#include <variant>
#include <vector>

#include "core/bounded_queue.hpp"
#include "core/event_fd.hpp"
#include "step/placer.hpp"

namespace kvstream {

/// A new block on its way into a slab of the pool: gathered and checksummed in one pass.
struct StageJob {
  std::uint64_t id = 0;
  std::span<const ConstSpan> from;  ///< valid until the job is done
  std::byte* into = nullptr;
  std::uint32_t size_bytes = 0;
  std::uint32_t padded_bytes = 0;  ///< zeroed up to here
};

struct StageDone {
  std::uint64_t id = 0;
  std::uint64_t checksum = 0;
};

/// Owned by the engine. Jobs come from the progress thread (submit_stage from any), results go to
/// the progress thread; both ways through bounded queues. `wake` is rung at each result.
class CopyThreads final : public Placer {
 public:
  CopyThreads(std::uint32_t threads, std::uint32_t jobs_max, const EventFd& wake);
  ~CopyThreads() override;

  bool submit(const PlaceJob& job) override;
  std::size_t poll(std::span<PlaceDone> out) override;
  bool submit_stage(const StageJob& job);
  std::size_t poll_staged(std::span<StageDone> out);
  /// CPU seconds spent on checksums and copies.
  double cpu_s() const { return static_cast<double>(cpu_ns_.load()) * 1e-9; }
  void close();

 private:
  using Job = std::variant<std::monostate, PlaceJob, StageJob>;
  void run();
  void perform(const Job& job);

  const EventFd& wake_;
  BoundedQueue<Job> jobs_;
  BoundedQueue<PlaceDone> placed_;
  BoundedQueue<StageDone> staged_;
  std::atomic<std::int64_t> room_;  ///< so that a result always has a place
  std::atomic<bool> stopping_{false};
  std::counting_semaphore<> work_{0};
  std::atomic<std::int64_t> cpu_ns_{0};
  std::vector<std::thread> threads_;
};

/// One job, as the threads do it: verifies, then copies to each destination. Any thread.
PlaceDone place(const PlaceJob& job);
StageDone stage(const StageJob& job);

}  // namespace kvstream
