// Time is injected: the same code runs under the wall, under tests and under the simulator.
#pragma once

#include <cstdint>
#include <limits>

namespace kvstream {

/// Nanoseconds of a monotonic clock; only differences mean anything.
using Nanos = std::int64_t;
inline constexpr Nanos kNever = std::numeric_limits<Nanos>::max();
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

/// Any thread may call now().
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

/// CLOCK_MONOTONIC, which all processes of a node share.
class SteadyClock final : public Clock {
 public:
  Nanos now() const override;
  static const SteadyClock& instance();
};

/// Stands still until a test moves it.
class FakeClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void set(Nanos now) { now_ = now; }
  void advance(Nanos by) { now_ += by; }

 private:
  Nanos now_ = 0;
};

}  // namespace kvstream
