// What sources share: a drive, a link. Window, rate and latency, over all steps and writes.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "device/write_window.hpp"
#include "kvstream/clock.hpp"

namespace kvstream {

/// Measures one device of this rank and says how much may be in flight (DESIGN.md section 4).
///
/// Pure of I/O; time is handed in. Owned by the engine, used by the progress thread alone; shared
/// by all boards and by the write-back pump. Everything is bounded by fixed arrays.
///
/// Rates are measured over at least max(250 ms, 16 blocks) of busy time, from the first completion
/// of a busy period on, so that the latency of its start does not count. The window is 2 x the best
/// rate of the last 8 rounds x the latency of a lone read, at least 2 blocks; it begins there and
/// at most doubles each round. Ranks that share the device each see their share of its rate, so
/// their windows add up to one; two blocks are added and a fifth taken off each round, which evens
/// them.
class Device {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite };
  struct Options {
    std::string id;
    std::uint32_t block_bytes = 1U << 20U;
    double prior_rate_bytes_per_s = 1e9;
    Nanos prior_latency_ns = kMillisecond;  ///< of a lone read of one block, its transfer included
    std::uint32_t in_flight_max = 64;       ///< operations
  };
  explicit Device(Options options);

  void on_submit(Kind kind, std::uint32_t bytes, Nanos now);
  /// `submitted` as given to on_submit.
  void on_complete(Kind kind, std::uint32_t bytes, Nanos submitted, bool good, Nanos now);
  /// Let the rate decay while work is in flight and nothing completes; call once a turn.
  void tick(Nanos now);
  /// Whether unread work waits that this device could serve: only then, and with a full window, a
  /// round counts. Call after the claims of a turn.
  void set_demand(bool unread_work_waits);
  void set_sharers(std::uint32_t ranks) { sharers_ = ranks ? ranks : 1; }

  double rate_bytes_per_ns() const { return rate_; }
  /// Of the undecayed kind: caps what an expected finish may be.
  double best_rate_bytes_per_ns() const { return measured_; }
  Nanos lone_latency_ns() const { return latency_; }
  /// The part of it that is not the transfer of the bytes.
  Nanos access_latency_ns() const;
  /// Of the last 128 reads; 0 when there were fewer than 4.
  Nanos p99_ns() const;
  std::uint64_t window_bytes() const { return window_; }
  /// Operations that may start now.
  std::uint32_t free_places() const;
  /// Writes that may start now: by a window of their own, and beside reads within theirs too.
  std::uint32_t free_write_places() const;
  double write_rate_bytes_per_ns() const { return write_window_.rate_bytes_per_ns(); }
  std::uint64_t write_bytes_in_flight() const { return write_window_.bytes_in_flight(); }
  std::uint32_t reads_in_flight() const { return reads_; }
  std::uint32_t writes_in_flight() const { return writes_; }
  std::uint64_t bytes_in_flight() const { return bytes_; }
  bool demand() const { return demand_; }
  const Options& options() const { return options_; }

  /// Writes: a credit by which each byte read while reads wait earns share/(1-share) bytes; at most
  /// 4 blocks, so that a long read phase does not end in a burst of writes.
  void earn_write_credit(std::uint32_t read_bytes, double share);
  /// Without waiting reads a write needs no credit, only a free place.
  bool write_credit_covers(std::uint32_t bytes) const { return !demand_ || write_credit_ >= bytes; }
  void spend_write_credit(std::uint32_t bytes);

 private:
  static constexpr std::size_t kRoundsKept = 8;
  static constexpr std::size_t kBuckets = 64;
  static constexpr std::size_t kLoneKept = 8;
  static constexpr std::size_t kLatenciesKept = 128;
  struct Bucket {
    std::uint64_t bytes = 0;
    Nanos busy_ns = 0;
    std::uint32_t count = 0;
  };

  void measure_read(std::uint32_t bytes, Nanos submitted, Nanos now);
  void note_latency(std::uint32_t bytes, Nanos elapsed, Nanos now);
  void end_round(Nanos now);
  std::uint64_t mean_bytes() const { return mean_bytes_; }

  Options options_;
  WriteWindow write_window_;
  double rate_ = 0;      ///< bytes per ns, decayed
  double measured_ = 0;  ///< bytes per ns
  Nanos latency_ = 0;
  std::uint64_t window_ = 0;
  std::uint64_t mean_bytes_ = 0;  ///< of the reads of late
  std::uint32_t reads_ = 0, writes_ = 0, sharers_ = 1;
  std::uint64_t bytes_ = 0, read_bytes_ = 0;
  double write_credit_ = 0;
  bool demand_ = false;

  bool alone_ = false;        ///< the one read in flight has had no company
  bool period_open_ = false;  ///< a completion of this busy period has been seen
  Nanos period_first_ = 0;    ///< when
  Nanos last_mark_ = 0;       ///< the last completion counted
  Nanos quiet_since_ = 0;     ///< the last completion, or the start of the busy period
  std::array<Bucket, kBuckets> buckets_{};
  std::size_t bucket_first_ = 0, bucket_count_ = 0;
  Bucket sum_;

  Nanos round_start_ = 0;
  std::uint64_t round_bytes_ = 0;
  bool round_counts_ = false;
  std::array<double, kRoundsKept> rounds_{};
  std::size_t rounds_seen_ = 0;

  std::array<Nanos, kLoneKept> lone_{};
  std::size_t lone_seen_ = 0;
  std::array<Nanos, kLatenciesKept> latencies_{};
  std::size_t latencies_seen_ = 0;
  mutable std::size_t p99_at_ = 0;  ///< latencies_seen_ when p99_ was worked out
  mutable Nanos p99_ = 0;
};

}  // namespace kvstream
