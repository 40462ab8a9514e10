#include <poll.h>

#include <algorithm>
#include <array>

#include "core/logging.hpp"
#include "engine/engine_impl.hpp"

namespace kvstream {
namespace {

constexpr std::size_t kAtOnce = 64;
constexpr Nanos kSlowTimersPeriod = 50 * kMillisecond;
/// The loop never sleeps longer, so that time that a fake clock moved is seen.
constexpr Nanos kNapMax = 100 * kMillisecond;

}  // namespace

void EngineImpl::run() {
  while (!stopping_.load(std::memory_order_acquire)) {
    const Nanos wake = turn();
    if (!stopping_.load(std::memory_order_acquire)) sleep_until(wake);
  }
  last_stats_ = collect_stats();
  stopped_.store(true, std::memory_order_release);
  Command command;
  while (commands_.pop(command)) command = nullptr;  // breaks the promises of callers that wait
}

/// Poll, complete, timers, claims, in this order: what a timer frees is claimed in the same turn.
Nanos EngineImpl::turn() {
  const Nanos now = clock_.now();
  run_commands(now);
  for (std::uint8_t tier = 0; tier < seats_.size(); ++tier) {
    poll_tier(tier, now);
    if (driven_ || seats_[tier].chores->take_news()) take_changes(tier);
  }
  poll_copies(now);
  free_retracted();
  Nanos wake = slow_timers(now);
  wake = std::min(wake, dispatcher_->timers(now));
  wake = std::min(wake, dispatcher_->claims(now));
  wake = std::min(wake, pump_->turn(now));
  for (const auto& seat : seats_) wake = std::min(wake, seat.tier->next_event());
  return std::min(wake, copies_->next_event());
}

bool EngineImpl::idle() const {
  return dispatcher_->idle() && pump_->idle() && staging_count_ == 0 && !probing();
}

void EngineImpl::run_commands(Nanos now) {
  Command command;
  for (std::size_t i = 0; i < kAtOnce && commands_.pop(command); ++i) command(now);
}

void EngineImpl::poll_tier(std::uint8_t tier, Nanos now) {
  std::array<Completion, kAtOnce> done;
  const auto count = seats_[tier].tier->poll(done);
  for (std::size_t i = 0; i < count; ++i) {
    if ((done[i].id & WriteBackPump::kWriteBit) != 0) {
      pump_->on_write_complete(tier, done[i], now);
      continue;
    }
    if (done[i].id == kProbeId) {
      on_probe_complete(tier, done[i], now);
      continue;
    }
    // A byte read while others wait earns credit for writes.
    if (dispatcher_->reads_wait(tier)) {
      seats_[tier].device->earn_write_credit(done[i].size_bytes, options_.settings.write_share_min);
    }
    dispatcher_->on_read_complete(tier, done[i], now);
  }
}

void EngineImpl::poll_copies(Nanos now) {
  std::array<PlaceDone, kAtOnce> placed;
  for (auto count = copies_->poll(placed); count > 0; count = copies_->poll(placed)) {
    for (std::size_t i = 0; i < count; ++i) dispatcher_->on_placed(placed[i], now);
  }
  std::array<StageDone, kAtOnce> staged;
  for (auto count = copies_->poll_staged(staged); count > 0; count = copies_->poll_staged(staged)) {
    for (std::size_t i = 0; i < count; ++i) {
      Staging& seat = staging_[staged[i].id];
      seat.ticket->on_staged();
      std::byte* slab = write_slabs_->region().data + staged[i].id * write_slabs_->slab_bytes();
      pump_->enqueue({seat.block, staged[i].checksum, slab, seat.targets, staged[i].id}, now);
    }
  }
}

void EngineImpl::on_written(const PumpBlock& block, std::uint32_t copies) {
  Staging seat = std::move(staging_[block.owner]);
  staging_[block.owner] = {};
  write_slabs_->give(block.slab);
  --staging_count_;
  if (copies > 0) {
    ++published_;
    seat.ticket->on_published(seat.index);
  } else {
    ++dropped_;
    seat.ticket->on_dropped(true);
  }
}

void EngineImpl::take_changes(std::uint8_t tier) {
  std::array<CatalogChange, kAtOnce> changes;
  for (auto count = seats_[tier].tier->changes(changes); count > 0;
       count = seats_[tier].tier->changes(changes)) {
    for (std::size_t i = 0; i < count; ++i) apply_change(tier, changes[i]);
  }
}

void EngineImpl::apply_change(std::uint8_t tier, const CatalogChange& change) {
  const Replica replica{tier, change.own, change.at, change.size_bytes, change.checksum};
  switch (change.kind) {
    case CatalogChange::Kind::kAdded:
      // A catalog that is full forgets; a slot of our own must not stay taken for nothing.
      if (!catalog_->publish(change.key, replica) && change.own) seats_[tier].tier->free(change.at);
      break;
    case CatalogChange::Kind::kRemoved:
      catalog_->retract(change.key, replica);
      break;
    case CatalogChange::Kind::kRecycled:
      ++seats_[tier].recycled;
      break;
    case CatalogChange::Kind::kBad:
      ++seats_[tier].bad;
      break;
  }
}

void EngineImpl::free_retracted() {
  std::array<Victim, kAtOnce> freed;
  for (auto count = catalog_->take_freed(freed); count > 0; count = catalog_->take_freed(freed)) {
    for (std::size_t i = 0; i < count; ++i) {
      seats_[freed[i].replica.tier].tier->free(freed[i].replica.at);
    }
  }
}

Nanos EngineImpl::slow_timers(Nanos now) {
  if (now < next_slow_timers_) return next_slow_timers_;
  next_slow_timers_ = now + kSlowTimersPeriod;
  never_loaded_ += catalog_->expire_leases(now);
  for (auto& seat : seats_) {
    const auto report = seat.tier->report();
    seat.device->set_sharers(report.sharers);
  }
  probe_when_idle(now);
  std::erase_if(steps_, [](const auto& entry) {
    const auto ticket = entry.second.lock();
    return !ticket || ticket->drained();
  });
  // Nothing to do but this: then a late look costs nothing, and an idle rank sleeps.
  return dispatcher_->idle() && pump_->idle() ? now + kNapMax : next_slow_timers_;
}

void EngineImpl::sleep_until(Nanos wake) {
  std::array<pollfd, kTiersMax + 1> fds;
  nfds_t count = 0;
  fds[count++] = {wake_->fd(), POLLIN, 0};
  for (const auto& seat : seats_) {
    const int fd = seat.tier->wait_fd();
    if (fd >= 0) fds[count++] = {fd, POLLIN, 0};
  }
  const Nanos left = std::clamp<Nanos>(wake == kNever ? kNapMax : wake - clock_.now(), 0, kNapMax);
  if (left == 0) return;
  const timespec timeout{left / kSecond, left % kSecond};
  if (::ppoll(fds.data(), count, &timeout, nullptr) > 0 && (fds[0].revents & POLLIN) != 0) {
    wake_->clear();
  }
}

void EngineImpl::on_unhold(const BlockKey& key, const Replica& replica) {
  catalog_->unhold(key, replica);
}

void EngineImpl::on_mismatch(const BlockKey& key, const Replica& replica) {
  auto& seat = seats_[replica.tier];
  catalog_->retract(key, replica);
  if (replica.own) {
    ++seat.bad;
    logger("engine").warn("tier {}: a block of {} B did not match its checksum; dropped",
                          seat.spec.name, replica.size_bytes);
    return;
  }
  seat.tier->recheck(
      {CatalogChange::Kind::kBad, false, key, replica.at, replica.size_bytes, replica.checksum});
  if (seat.chores) seat.chores->hurry();
}

void EngineImpl::on_hit(const BlockKey& key, SourceId) { catalog_->touch(key); }

void EngineImpl::on_slots_wanted(std::uint8_t tier) {
  if (seats_[tier].chores) seats_[tier].chores->hurry();
}

bool EngineImpl::reads_wait(std::uint8_t tier) const { return dispatcher_->reads_wait(tier); }

}  // namespace kvstream
