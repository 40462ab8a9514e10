#include "engine/threaded_tier.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <variant>

#include "core/bounded_queue.hpp"
#include "core/event_fd.hpp"
#include "engine/abandoned.hpp"

namespace kvstream {
namespace {

using Op = std::variant<std::monostate, ReadOp, WriteOp>;

}  // namespace

/// What the threads share with the adapter, and keep alive when they are abandoned.
struct ThreadedTier::Shared {
  Shared(std::unique_ptr<BlockingTier> blocking, std::uint32_t in_flight_max)
      : tier(std::move(blocking)), ops(in_flight_max + 64), done(in_flight_max + 64) {}

  std::unique_ptr<BlockingTier> tier;
  BoundedQueue<Op> ops;
  BoundedQueue<Completion> done;
  std::counting_semaphore<> work{0};
  std::atomic<bool> stopping{false};
  EventFd event;
  std::mutex mutex;
  std::condition_variable ended;
  std::uint32_t threads_alive = 0;

  /// A pop may find nothing for a moment while another thread pushes; only `stopping` ends.
  bool take(Op& op) {
    while (!ops.pop(op)) {
      if (stopping.load(std::memory_order_acquire)) return false;
      std::this_thread::yield();
    }
    return true;
  }

  void run() {
    Op op;
    for (;;) {
      work.acquire();
      if (!take(op)) break;
      Completion completion = perform(op);
      done.push(std::move(completion));
      event.ring();
    }
    const std::lock_guard lock(mutex);
    --threads_alive;
    ended.notify_all();
  }

  Completion perform(const Op& op) {
    if (const auto* read = std::get_if<ReadOp>(&op)) {
      const auto got = tier->read(*read);
      return {read->id, got ? Code::kOk : got.error().code(), got ? *got : 0};
    }
    const auto& write = std::get<WriteOp>(op);
    const Status status = tier->write(write);
    return {write.id, status.code(), status.is_ok() ? write.size_bytes : 0};
  }
};

std::unique_ptr<ThreadedTier> ThreadedTier::open(std::unique_ptr<BlockingTier> tier, const Clock&) {
  const auto in_flight_max = std::max<std::uint32_t>(1, tier->traits().in_flight_max);
  const auto threads = std::max<std::uint32_t>(1, tier->traits().io_threads);
  auto shared = std::make_shared<Shared>(std::move(tier), in_flight_max);
  shared->threads_alive = threads;
  std::unique_ptr<ThreadedTier> adapter(new ThreadedTier(shared));
  for (std::uint32_t i = 0; i < threads; ++i) {
    adapter->threads_.emplace_back([shared] { shared->run(); });
  }
  return adapter;
}

ThreadedTier::ThreadedTier(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

ThreadedTier::~ThreadedTier() { close(30 * kSecond); }

bool ThreadedTier::close(Nanos timeout) {
  if (threads_.empty()) return true;
  shared_->stopping.store(true, std::memory_order_release);
  for (std::size_t i = 0; i < threads_.size(); ++i) shared_->work.release();
  std::unique_lock lock(shared_->mutex);
  const bool all = shared_->ended.wait_for(lock, std::chrono::nanoseconds(timeout),
                                           [this] { return shared_->threads_alive == 0; });
  lock.unlock();
  if (all) {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    return true;
  }
  abandon(std::move(threads_));
  threads_.clear();
  return false;
}

const TierTraits& ThreadedTier::traits() const { return shared_->tier->traits(); }
Result<SlotRef> ThreadedTier::reserve(std::uint32_t size_bytes) {
  return shared_->tier->reserve(size_bytes);
}
void ThreadedTier::free(SlotRef at) { shared_->tier->free(at); }

std::size_t ThreadedTier::submit_reads(std::span<const ReadOp> ops) {
  std::size_t taken = 0;
  for (const auto& op : ops) {
    if (in_flight_ >= traits().in_flight_max || !shared_->ops.push(Op(op))) break;
    ++in_flight_;
    ++taken;
    shared_->work.release();
  }
  return taken;
}

std::size_t ThreadedTier::submit_writes(std::span<const WriteOp> ops) {
  std::size_t taken = 0;
  for (const auto& op : ops) {
    if (in_flight_ >= traits().in_flight_max || !shared_->ops.push(Op(op))) break;
    ++in_flight_;
    ++taken;
    shared_->work.release();
  }
  return taken;
}

std::size_t ThreadedTier::poll(std::span<Completion> out) {
  shared_->event.clear();
  std::size_t count = 0;
  while (count < out.size() && shared_->done.pop(out[count])) ++count;
  if (count == out.size()) shared_->event.ring();  // there may be more
  in_flight_ -= static_cast<std::uint32_t>(count);
  return count;
}

int ThreadedTier::wait_fd() const { return shared_->event.fd(); }
std::size_t ThreadedTier::changes(std::span<CatalogChange> out) {
  return shared_->tier->changes(out);
}
void ThreadedTier::recheck(const CatalogChange& seen) { shared_->tier->recheck(seen); }
Status ThreadedTier::chore() { return shared_->tier->chore(); }
TierReport ThreadedTier::report() const { return shared_->tier->report(); }

AdaptedTier adapt(AnyTier made, const Clock& clock) {
  auto* blocking = std::get_if<std::unique_ptr<BlockingTier>>(&made);
  if (blocking == nullptr) return {std::move(std::get<std::unique_ptr<Tier>>(made)), nullptr};
  auto threaded = ThreadedTier::open(std::move(*blocking), clock);
  ThreadedTier* adapter = threaded.get();
  return {std::move(threaded), adapter};
}

}  // namespace kvstream
