// One line on a terminal that says how far a run is.
#pragma once

#include <cstdint>
#include <string>

#include "kvstream/clock.hpp"

namespace kvstream {

/// auto: when stderr is a terminal.
enum class ProgressMode : std::uint8_t { kAuto, kOn, kOff };

/// One thread. Draws at most ten times a second; wipes its line at the end.
class ProgressBar {
 public:
  ProgressBar(ProgressMode mode, std::uint32_t rank);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(const std::string& what, std::uint64_t done, std::uint64_t all);
  void wipe();

 private:
  bool on_;
  bool drawn_ = false;
  Nanos next_ = 0;
  std::string last_what_;
};

}  // namespace kvstream
