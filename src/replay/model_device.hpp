// A drive, a mount or memory as virtual time sees it. Pure.
#pragma once

#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"

namespace kvstream {

enum class Transfer : std::uint8_t { kRead, kWrite };

/// What `kvstream bench --fit` finds of a real one, or a throttle says. Rates of 0 take no time.
struct DeviceModel {
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  Nanos read_latency_ns = 0;  ///< of a lone access, its transfer left out
  Nanos write_latency_ns = 0;
  std::uint32_t concurrency = 0;  ///< operations served at a time; 0 = as many as there are
  /// Part of a write's transfer that reads lose, and the other way round: 0 for two directions
  /// that know nothing of each other (a throttle), 1 for one channel that both share.
  double disturbance = 0;
  Nanos burst_ns = 0;  ///< a throttle's: so much time at its rate may be had at once after a gap
};

/// First come, first served: an access waits for one of `concurrency` places, then for its latency
/// (which those of other accesses overlap), then for its turn on the channel of its direction.
/// Owned by a virtual run, shared by the tiers of all ranks that lie on it; one thread.
class ModelDevice {
 public:
  ModelDevice(std::string id, const DeviceModel& model) : id_(std::move(id)), model_(model) {}

  /// When an access that comes now will have ended. Times never decrease from call to call.
  Nanos submit(Transfer transfer, std::uint64_t bytes, Nanos now);
  /// From now on at factor x its rates (accesses that have begun end as they were to).
  void set_factor(double factor) { factor_ = factor; }

  const std::string& id() const { return id_; }
  const DeviceModel& model() const { return model_; }

 private:
  Nanos place_free_at(Nanos now);

  std::string id_;
  DeviceModel model_;
  double factor_ = 1;
  double read_free_ns_ = 0, write_free_ns_ = 0;  ///< when each channel is free
  std::priority_queue<Nanos, std::vector<Nanos>, std::greater<>> ends_;  ///< of what is served
};

}  // namespace kvstream
