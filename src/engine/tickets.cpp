#include "engine/tickets.hpp"

#include <algorithm>
#include <chrono>

namespace kvstream {
namespace {

/// Sleeps until `ready`, the deadline on `clock`, or half a second; the last so that a clock that
/// is not the wall's is looked at again.
template <class Ready>
bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
              const Clock& clock, Nanos deadline, Ready ready) {
  while (!ready()) {
    const Nanos left = deadline == kNever ? kNever : deadline - clock.now();
    if (left <= 0) return false;
    const auto nap = std::chrono::nanoseconds(std::min<Nanos>(left, kSecond / 2));
    changed.wait_for(lock, nap);
  }
  return true;
}

}  // namespace

TicketState::TicketState(const Clock& clock, const StepRequest& request,
                         std::shared_ptr<const EventFd> ended)
    : clock_(clock),
      ended_(std::move(ended)),
      remaining_(new std::atomic<std::uint32_t>[request.requests.size()]) {
  result_.submitted_at = clock.now();
  result_.requests.resize(request.requests.size());
  for (std::size_t i = 0; i < request.requests.size(); ++i) {
    const auto count = request.requests[i].blocks.size();
    result_.requests[i].blocks.resize(count);
    remaining_[i].store(static_cast<std::uint32_t>(count));
  }
}

bool TicketState::request_ready(std::size_t request) const {
  return request < result_.requests.size() &&
         remaining_[request].load(std::memory_order_acquire) == 0;
}

bool TicketState::wait_until(Nanos deadline) const {
  std::unique_lock lock(mutex_);
  return wait_for(lock, changed_, clock_, deadline, [this] { return done(); });
}

bool TicketState::wait_drained(Nanos deadline) const {
  std::unique_lock lock(mutex_);
  return wait_for(lock, changed_, clock_, deadline, [this] { return drained(); });
}

void TicketState::on_block(std::uint32_t request, std::uint32_t position, BlockOutcome outcome,
                           bool, Nanos now) {
  auto& result = result_.requests[request];
  result.blocks[position] = outcome;
  if (remaining_[request].load(std::memory_order_relaxed) == 1) {
    result.ready_at = now;
    const auto hole =
        std::find_if(result.blocks.begin(), result.blocks.end(),
                     [](const auto& block) { return block.state != BlockState::kHit; });
    result.usable_blocks = static_cast<std::uint32_t>(hole - result.blocks.begin());
  }
  remaining_[request].fetch_sub(1, std::memory_order_release);
}

void TicketState::on_step_end(Nanos now) {
  result_.ended_at = now;
  const std::lock_guard lock(mutex_);
  done_.store(true, std::memory_order_release);
  changed_.notify_all();
  ended_->ring();
}

void TicketState::on_drained(Nanos) {
  const std::lock_guard lock(mutex_);
  drained_.store(true, std::memory_order_release);
  changed_.notify_all();
  ended_->ring();
}

void TicketState::end_without_reads(MissReason reason, Nanos now) {
  for (std::uint32_t request = 0; request < result_.requests.size(); ++request) {
    const auto count = result_.requests[request].blocks.size();
    for (std::uint32_t position = 0; position < count; ++position) {
      on_block(request, position, {BlockState::kMiss, reason, 0}, false, now);
    }
  }
  on_step_end(now);
  on_drained(now);
}

SaveState::SaveState(const Clock& clock, const SaveRequest& request,
                     std::shared_ptr<const EventFd> ended)
    : clock_(clock), ended_(std::move(ended)), published_(request.blocks.size()) {
  counts_.offered = request.blocks.size();
  first_span_.reserve(request.blocks.size() + 1);
  for (const auto& block : request.blocks) {
    first_span_.push_back(static_cast<std::uint32_t>(spans_.size()));
    spans_.insert(spans_.end(), block.from.begin(), block.from.end());
  }
  first_span_.push_back(static_cast<std::uint32_t>(spans_.size()));
  if (request.blocks.empty()) ended_->ring();
}

std::span<const ConstSpan> SaveState::spans_of(std::size_t block) const {
  return std::span(spans_).subspan(first_span_[block], first_span_[block + 1] - first_span_[block]);
}

SaveCounts SaveState::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool SaveState::published(std::size_t block) const {
  const std::lock_guard lock(mutex_);
  return block < published_.size() && published_[block] != 0;
}

bool SaveState::wait_staged(Nanos deadline) const {
  std::unique_lock lock(mutex_);
  return wait_for(lock, changed_, clock_, deadline, [this] { return all_staged(); });
}

bool SaveState::wait_done(Nanos deadline) const {
  std::unique_lock lock(mutex_);
  return wait_for(lock, changed_, clock_, deadline, [this] { return all_done(); });
}

void SaveState::on_staged() {
  const std::lock_guard lock(mutex_);
  ++counts_.staged;
  changed_.notify_all();
  if (all_staged()) ended_->ring();
}

void SaveState::on_published(std::size_t block) {
  const std::lock_guard lock(mutex_);
  ++counts_.published;
  published_[block] = 1;
  changed_.notify_all();
  if (all_done()) ended_->ring();
}

void SaveState::on_dropped(bool was_staged) {
  const std::lock_guard lock(mutex_);
  ++counts_.dropped;
  if (!was_staged) ++dropped_unstaged_;
  changed_.notify_all();
  if (all_done() || (!was_staged && all_staged())) ended_->ring();
}

}  // namespace kvstream
