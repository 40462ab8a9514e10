#include "kvstream/clock.hpp"

#include <ctime>

namespace kvstream {

Nanos SteadyClock::now() const {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return Nanos{time.tv_sec} * kSecond + time.tv_nsec;
}

const SteadyClock& SteadyClock::instance() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace kvstream
