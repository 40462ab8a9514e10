#include "replay/slow_schedule.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/units.hpp"

namespace kvstream {

Result<SlowEvent> parse_slow(std::string_view text) {
  const auto bad = [&] {
    return failure(Code::kInvalidArgument, "slow = \"" + std::string(text) +
                                               "\" is not TIER@SECONDS=FACTOR, e.g. pfs@0.1=1/10");
  };
  const std::size_t at = text.find('@'), equals = text.rfind('=');
  if (at == std::string_view::npos || equals == std::string_view::npos || equals < at || at == 0) {
    return bad();
  }
  const auto when = parse_duration(text.substr(at + 1, equals - at - 1));
  const auto factor = parse_fraction(text.substr(equals + 1));
  if (!when || !factor) return bad();
  return SlowEvent{std::string(text.substr(0, at)), *when, *factor};
}

SlowSchedule::SlowSchedule(std::vector<SlowEvent> events, SetSpeed set_speed, const Clock& clock,
                           Nanos start)
    : events_(std::move(events)), set_speed_(std::move(set_speed)), clock_(clock), start_(start) {
  std::stable_sort(events_.begin(), events_.end(),
                   [](const SlowEvent& a, const SlowEvent& b) { return a.at_ns < b.at_ns; });
  if (!events_.empty() && set_speed_) thread_ = std::thread([this] { run(); });
}

SlowSchedule::~SlowSchedule() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_all();
  thread_.join();
  for (const auto& event : events_) set_speed_(event.tier, 1.0);
}

void SlowSchedule::run() {
  for (const auto& event : events_) {
    std::unique_lock lock(mutex_);
    for (Nanos left = start_ + event.at_ns - clock_.now(); left > 0 && !ended_;
         left = start_ + event.at_ns - clock_.now()) {
      ended_changed_.wait_for(lock, std::chrono::nanoseconds(left));
    }
    if (ended_) return;
    lock.unlock();
    set_speed_(event.tier, event.factor);
  }
}

}  // namespace kvstream
