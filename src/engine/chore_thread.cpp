#include "engine/chore_thread.hpp"

#include <chrono>

#include "core/logging.hpp"
#include "engine/abandoned.hpp"

namespace kvstream {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);

}  // namespace

ChoreThread::ChoreThread(Tier& tier, std::shared_ptr<const EventFd> wake)
    : shared_(std::make_shared<Shared>()) {
  // An abandoned thread may come back: what it touches then is alive as long as it is.
  thread_.emplace_back(
      [&tier, wake = std::move(wake), shared = shared_] { run(tier, *wake, *shared); });
}

ChoreThread::~ChoreThread() { close(30 * kSecond); }

void ChoreThread::run(Tier& tier, const EventFd& wake, Shared& shared) {
  LogLimiter limiter;
  std::unique_lock lock(shared.mutex);
  while (!shared.stop) {
    shared.hurry = false;
    lock.unlock();
    const Status status = tier.chore();
    std::uint64_t suppressed = 0;
    if (!status.is_ok() && limiter.admit(SteadyClock::instance().now(), suppressed)) {
      logger("engine").warn("tier {}: {} ({} similar lines left out)", tier.traits().name,
                            status.to_string(), suppressed);
    }
    ++shared.rounds;
    shared.news = true;
    wake.ring();
    lock.lock();
    shared.changed.wait_for(lock, kPeriod, [&] { return shared.hurry || shared.stop; });
  }
  shared.ended = true;
  shared.changed.notify_all();
}

void ChoreThread::hurry() {
  const std::lock_guard lock(shared_->mutex);
  shared_->hurry = true;
  shared_->changed.notify_all();
}

bool ChoreThread::close(Nanos timeout) {
  if (thread_.empty()) return true;
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, std::chrono::nanoseconds(timeout),
                                               [this] { return shared_->ended; });
  lock.unlock();
  if (ended) {
    thread_.front().join();
  } else {
    abandon(std::move(thread_));
  }
  thread_.clear();
  return ended;
}

}  // namespace kvstream
