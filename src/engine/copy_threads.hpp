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

/// Who places and stages blocks: threads, or a model of them. Owned by the engine; submit, poll and
/// poll_staged are called by the progress thread, submit_stage by any.
class Copies : public Placer {
 public:
  /// False when its queue is full.
  virtual bool submit_stage(const StageJob& job) = 0;
  virtual std::size_t poll_staged(std::span<StageDone> out) = 0;
  /// When poll() should be called at the latest; kNever when a result wakes the caller itself.
  virtual Nanos next_event() const = 0;
  /// CPU seconds spent on checksums and copies.
  virtual double cpu_s() const = 0;
  virtual void close() = 0;
};

/// Jobs and results go through bounded queues. `wake` is rung at each result.
class CopyThreads final : public Copies {
 public:
  CopyThreads(std::uint32_t threads, std::uint32_t jobs_max, const EventFd& wake);
  ~CopyThreads() override;

  bool submit(const PlaceJob& job) override;
  std::size_t poll(std::span<PlaceDone> out) override;
  bool submit_stage(const StageJob& job) override;
  std::size_t poll_staged(std::span<StageDone> out) override;
  Nanos next_event() const override { return kNever; }
  double cpu_s() const override { return static_cast<double>(cpu_ns_.load()) * 1e-9; }
  void close() override;

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
