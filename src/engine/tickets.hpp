// What load_step and save_step hand out.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "core/event_fd.hpp"
#include "kvstream/step.hpp"
#include "step/dispatcher.hpp"

namespace kvstream {

/// Written by the progress thread, read by any. Kept alive by the dispatcher until drained, and by
/// whoever waits.
class TicketState final : public StepTicket, public StepSink {
 public:
  /// `ended` is rung when the step ends and when it is drained.
  TicketState(const Clock& clock, const StepRequest& request, std::shared_ptr<const EventFd> ended);

  bool done() const override { return done_.load(std::memory_order_acquire); }
  bool request_ready(std::size_t request) const override;
  bool wait_until(Nanos deadline) const override;
  const StepResult& result() const override { return result_; }
  bool drained() const override { return drained_.load(std::memory_order_acquire); }

  void on_block(std::uint32_t request, std::uint32_t position, BlockOutcome outcome, bool held,
                Nanos now) override;
  void on_step_end(Nanos now) override;
  void on_drained(Nanos now) override;

  /// Waits for drained(); true when it came in time.
  bool wait_drained(Nanos deadline) const;
  /// Progress thread: which step of the dispatcher this is.
  void set_step(StepId step) { step_ = step; }
  StepId step() const { return step_; }
  /// Nothing was begun: every block is a miss. Before the ticket is handed out.
  void end_without_reads(MissReason reason, Nanos now);

 private:
  const Clock& clock_;
  std::shared_ptr<const EventFd> ended_;
  StepResult result_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> remaining_;  ///< blocks, one a request
  std::atomic<bool> done_{false}, drained_{false};
  StepId step_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

/// Counts of one save_step; keeps the list of its source spans until they are staged.
class SaveState final : public SaveTicketState {
 public:
  /// `ended` is rung when all blocks are staged and when all are done.
  SaveState(const Clock& clock, const SaveRequest& request, std::shared_ptr<const EventFd> ended);

  SaveCounts counts() const override;
  bool published(std::size_t block) const override;
  bool wait_staged(Nanos deadline) const override;
  bool wait_done(Nanos deadline) const override;

  std::span<const ConstSpan> spans_of(std::size_t block) const;
  void on_staged();
  void on_published(std::size_t block);
  void on_dropped(bool was_staged);

 private:
  bool all_staged() const { return counts_.staged + dropped_unstaged_ == counts_.offered; }
  bool all_done() const { return counts_.published + counts_.dropped == counts_.offered; }

  const Clock& clock_;
  std::shared_ptr<const EventFd> ended_;
  std::vector<ConstSpan> spans_;
  std::vector<std::uint32_t> first_span_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  SaveCounts counts_;
  std::uint64_t dropped_unstaged_ = 0;
  std::vector<std::uint8_t> published_;  ///< one a block
};

}  // namespace kvstream
