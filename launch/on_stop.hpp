// Something that must be done as soon as a signal has come, whatever the main thread waits for.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace kvstream {

/// Owned by what the act belongs to; its thread (joined by the destructor) looks at stop_flag() ten
/// times a second and calls `act` once at most.
class OnStop {
 public:
  explicit OnStop(std::function<void()> act);
  ~OnStop();
  OnStop(const OnStop&) = delete;
  OnStop& operator=(const OnStop&) = delete;

 private:
  void watch();

  std::function<void()> act_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace kvstream
