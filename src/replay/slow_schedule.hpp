// Slows a tier down in the middle of a run.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// From `at_ns` after the start of each side on, the tier's throttle runs at factor x its rate.
struct SlowEvent {
  std::string tier;
  Nanos at_ns = 0;
  double factor = 1;
};

/// "pfs@0.1=1/10": tier, seconds after the start, factor.
Result<SlowEvent> parse_slow(std::string_view text);

using SetSpeed = std::function<void(const std::string& tier, double factor)>;

/// One thread, joined by the destructor, which puts the speeds back. Nothing happens without
/// events.
class SlowSchedule {
 public:
  SlowSchedule(std::vector<SlowEvent> events, SetSpeed set_speed, const Clock& clock, Nanos start);
  ~SlowSchedule();
  SlowSchedule(const SlowSchedule&) = delete;
  SlowSchedule& operator=(const SlowSchedule&) = delete;

 private:
  void run();

  std::vector<SlowEvent> events_;  ///< in order of time
  SetSpeed set_speed_;
  const Clock& clock_;
  Nanos start_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace kvstream
