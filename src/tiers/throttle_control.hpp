// The speed limit of a device, shared by every rank of a node that uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"
#include "kvstream/tier.hpp"

namespace kvstream {

enum class Direction : std::uint8_t { kRead, kWrite };
/// While it is kOn, operations cost no time and leave no debt (to fill a tier at full speed).
enum class Bypass : std::uint8_t { kOff, kOn };

/// One smooth token bucket (GCRA) for reads and one for writes. Their state is one small mapped
/// file in the tier's root directory (".throttle"), or memory of this process alone where the tier
/// has no path. Rates and bypass may be changed while the tiers run, and hold for all ranks.
///
/// Shared by the throttled tiers of this process and whoever steers the run; all members from any
/// thread. The first process to open the file sets it up anew; while somebody has it open, later
/// ones join what is there.
class ThrottleControl {
 public:
  /// What a device gives for nothing after an idle gap, as time at its rate.
  static constexpr Nanos kBurstNs = 5 * kMillisecond;
  static constexpr const char* kFileName = ".throttle";

  struct Rates {  ///< 0 = not limited
    std::uint64_t read_bytes_per_s = 0;
    std::uint64_t write_bytes_per_s = 0;
    bool operator==(const Rates&) const = default;
  };

  /// Makes the directory `root` when it is not there; "" = no file.
  static Result<std::shared_ptr<ThrottleControl>> open(const std::string& root,
                                                       const ThrottleSpec& spec);
  ~ThrottleControl();
  ThrottleControl(const ThrottleControl&) = delete;
  ThrottleControl& operator=(const ThrottleControl&) = delete;

  /// For operations that start later; those in flight keep the time that they were given.
  void set_rates(Rates rates);
  Rates rates() const;
  /// As given at open().
  Rates rates_at_open() const { return rates_at_open_; }
  void bypass(Bypass bypass);
  Bypass bypass() const;
  Nanos latency_ns() const { return latency_ns_; }
  /// Free credit after an idle gap, at the present rate (0 when there is no limit).
  std::uint64_t burst_bytes(Direction direction) const;

  /// Takes `size_bytes` out of the bucket and says when the operation may end, without latency.
  Nanos reserve(Direction direction, std::uint32_t size_bytes, Nanos now);

 private:
  struct Shared;
  ThrottleControl(const ThrottleSpec& spec, Shared* shared, int fd);

  Shared* shared_;
  int fd_;  ///< holds the lock that says "in use"; -1 = no file
  Rates rates_at_open_;
  Nanos latency_ns_;
};

}  // namespace kvstream
