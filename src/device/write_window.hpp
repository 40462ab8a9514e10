// How many bytes of writes a device is given at once while it has no reads to do.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kvstream/clock.hpp"

namespace kvstream {

/// The rule of reads, for writes: 2 x the best rate of the last 8 rounds x the latency of a write
/// that found the device without one (the least of the last 8), at least 2 blocks; it at most
/// doubles each round, and only rounds in which it was full count. Pure; owned by a Device.
class WriteWindow {
 public:
  explicit WriteWindow(std::uint32_t block_bytes);

  void on_submit(std::uint32_t bytes, Nanos now);
  void on_complete(std::uint32_t bytes, Nanos submitted, bool good, Nanos now);
  std::uint64_t window_bytes() const { return window_; }
  std::uint64_t bytes_in_flight() const { return bytes_; }
  /// To the nearest block, and two of the size that is common now at the least: a block that is a
  /// little larger than most must not keep the second out.
  bool has_room() const { return bytes_ + mean_ / 2 <= std::max(window_, 2 * mean_); }
  /// Bytes per ns while writes were in flight, of late; 0 until some have ended.
  double rate_bytes_per_ns() const { return busy_ns_ > 0 ? busy_bytes_ / busy_ns_ : 0; }

 private:
  static constexpr std::size_t kRoundsKept = 8;
  static constexpr std::size_t kLatenciesKept = 8;
  void end_round(Nanos now);

  std::uint64_t mean_;
  std::uint64_t window_;
  std::uint64_t bytes_ = 0, round_bytes_ = 0;
  Nanos round_start_ = 0, alone_since_ = -1;
  double busy_bytes_ = 0, busy_ns_ = 0;
  Nanos busy_mark_ = 0;  ///< up to here busy time is counted
  bool was_full_ = false;
  std::array<double, kRoundsKept> rounds_{};
  std::array<Nanos, kLatenciesKept> latencies_{};
  std::size_t rounds_seen_ = 0, latencies_seen_ = 0;
};

}  // namespace kvstream
