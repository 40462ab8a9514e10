#include "launch/on_stop.hpp"

#include <chrono>
#include <utility>

#include "launch/signals.hpp"

namespace kvstream {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

OnStop::OnStop(std::function<void()> act) : act_(std::move(act)), thread_([this] { watch(); }) {}

OnStop::~OnStop() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_all();
  thread_.join();
}

void OnStop::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_ && !stop_flag().load()) ended_changed_.wait_for(lock, kLookEvery);
  if (!ended_) act_();
}

}  // namespace kvstream
