#include "client/c_works.hpp"

#include <sys/eventfd.h>

#include <utility>

namespace kvstream {
namespace {

static_assert(KVSTREAM_BLOCK_PENDING == static_cast<int>(BlockState::kPending) &&
              KVSTREAM_BLOCK_GOOD == static_cast<int>(BlockState::kHit) &&
              KVSTREAM_BLOCK_MISSING == static_cast<int>(BlockState::kMiss) &&
              KVSTREAM_BLOCK_LATE == static_cast<int>(BlockState::kLate) &&
              KVSTREAM_BLOCK_CANCELLED == static_cast<int>(BlockState::kCancelled));

/// True when a device might still write into a block: a late or cancelled one.
bool tell_load_done(const StepResult& result, std::uint8_t* states, kvstream_event& event) {
  event.kind = KVSTREAM_DONE;
  std::size_t next = 0;
  bool held = false;
  for (const RequestResult& request : result.requests) {
    for (const BlockOutcome& block : request.blocks) {
      event.good_blocks += block.state == BlockState::kHit ? 1 : 0;
      event.late_blocks += block.state == BlockState::kLate ? 1 : 0;
      held |= block.state == BlockState::kLate || block.state == BlockState::kCancelled;
      if (states != nullptr) states[next++] = static_cast<std::uint8_t>(block.state);
    }
  }
  return held;
}

void tell_save_done(const SaveTicketState& save, std::size_t count_blocks, std::uint8_t* states,
                    kvstream_event& event) {
  event.kind = KVSTREAM_DONE;
  for (std::size_t i = 0; i < count_blocks; ++i) {
    const bool good = save.published(i);
    event.good_blocks += good ? 1 : 0;
    if (states != nullptr) states[i] = good ? KVSTREAM_BLOCK_GOOD : KVSTREAM_BLOCK_MISSING;
  }
}

}  // namespace

Status WorkTable::check_room() const {
  if (works_.size() < kWorksMax) return Status::ok();
  return {Code::kOverloaded, "too much work is under way; call kvstream_poll() first"};
}

std::uint64_t WorkTable::add(Work work) {
  works_.emplace(++last_, std::move(work));
  return last_;
}

Result<std::uint64_t> WorkTable::load(const StepRequest& request, std::uint8_t* states) {
  const std::lock_guard lock(mutex_);
  if (Status status = check_room(); !status.is_ok()) return failure(status);
  auto ticket = engine_.load_step(request);
  if (!ticket) return failure(ticket.error());
  Work work;
  work.load = std::move(*ticket);
  work.states = states;
  return add(std::move(work));
}

Result<std::uint64_t> WorkTable::save(const SaveRequest& request, std::uint8_t* states) {
  const std::lock_guard lock(mutex_);
  if (Status status = check_room(); !status.is_ok()) return failure(status);
  Work work;
  work.save = engine_.save_step(request);
  work.count_blocks = request.blocks.size();
  work.states = states;
  return add(std::move(work));
}

Status WorkTable::cancel(std::uint64_t id, Nanos deadline) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    const auto work = works_.find(id);
    if (work == works_.end()) return {Code::kNotFound, "no such work, or its last event was taken"};
    ticket = work->second.load;
  }
  if (!ticket) return {Code::kInvalidArgument, "the work is a save; only loads can be cancelled"};
  return engine_.cancel(ticket, deadline);
}

bool WorkTable::next_event(Work& work, kvstream_event& event, bool& over) {
  if (work.save) {
    over = work.save->wait_done(0);
    if (over) {
      tell_save_done(*work.save, work.count_blocks, work.states, event);
      return true;
    }
    if (work.staged_told || !work.save->wait_staged(0)) return false;
    event.kind = KVSTREAM_STAGED;
    return work.staged_told = true;
  }
  if (!work.done_told) {
    if (!work.load->done()) return false;
    const bool held = tell_load_done(work.load->result(), work.states, event);
    over = !held || work.load->drained();
    event.undrained = over ? 0 : 1;
    return work.done_told = true;
  }
  over = work.load->drained();
  if (over) event.kind = KVSTREAM_DRAINED;
  return over;
}

std::size_t WorkTable::poll(std::span<kvstream_event> events) {
  const std::lock_guard lock(mutex_);
  eventfd_t rings = 0;
  [[maybe_unused]] const int emptied = ::eventfd_read(engine_.event_fd(), &rings);
  std::size_t count = 0;
  for (auto at = works_.begin(); at != works_.end();) {
    if (count == events.size()) {
      [[maybe_unused]] const int rung = ::eventfd_write(engine_.event_fd(), 1);
      break;
    }
    kvstream_event event{};
    event.work = at->first;
    bool over = false;
    if (next_event(at->second, event, over)) events[count++] = event;
    // One that is done is looked at once more: it may have drained before the eventfd was emptied.
    if (over) {
      at = works_.erase(at);
    } else if (event.kind != KVSTREAM_DONE) {
      ++at;
    }
  }
  return count;
}

}  // namespace kvstream
