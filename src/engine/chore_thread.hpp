// A tier's housekeeping, on a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/event_fd.hpp"
#include "kvstream/tier.hpp"

namespace kvstream {

/// Calls Tier::chore() about every 100 ms, and at once after hurry(). One a tier, so that a file
/// system that hangs holds up its own chores only. Owned by the engine; any thread may call.
class ChoreThread {
 public:
  ChoreThread(Tier& tier, std::shared_ptr<const EventFd> wake);
  ~ChoreThread();

  void hurry();
  /// True once since the last chore ended: the tier may have news for the catalog.
  bool take_news() { return shared_->news.exchange(false); }
  /// Number of chores that have ended.
  std::uint64_t rounds() const { return shared_->rounds.load(); }
  /// False when the thread is stuck: it is abandoned.
  bool close(Nanos timeout);

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool hurry = false, stop = false, ended = false;
    std::atomic<bool> news{true};
    std::atomic<std::uint64_t> rounds{0};
  };
  static void run(Tier& tier, const EventFd& wake, Shared& shared);

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> thread_;
};

}  // namespace kvstream
