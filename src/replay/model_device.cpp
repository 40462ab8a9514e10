#include "replay/model_device.hpp"

#include <algorithm>
#include <cmath>

namespace kvstream {

Nanos ModelDevice::place_free_at(Nanos now) {
  if (model_.concurrency == 0) return now;
  while (!ends_.empty() && ends_.top() <= now) ends_.pop();
  if (ends_.size() < model_.concurrency) return now;
  const Nanos free_at = ends_.top();
  ends_.pop();
  return free_at;
}

Nanos ModelDevice::submit(Transfer transfer, std::uint64_t bytes, Nanos now) {
  const bool read = transfer == Transfer::kRead;
  const double rate = (read ? model_.read_bytes_per_s : model_.write_bytes_per_s) * factor_ * 1e-9;
  const Nanos latency = read ? model_.read_latency_ns : model_.write_latency_ns;
  double& own = read ? read_free_ns_ : write_free_ns_;
  double& other = read ? write_free_ns_ : read_free_ns_;
  const auto ready = static_cast<double>(place_free_at(now) + latency);
  const double transfer_ns = rate > 0 ? static_cast<double>(bytes) / rate : 0;
  const double begin = std::max(ready - static_cast<double>(model_.burst_ns), own);
  own = begin + transfer_ns;
  // The other direction loses its part now, not when this transfer's turn comes: accesses that come
  // in between are not to wait for it. What a gap has saved up of its burst it keeps.
  if (model_.disturbance > 0) {
    const auto saved = static_cast<double>(now - model_.burst_ns);
    other = std::max(other, saved) + model_.disturbance * transfer_ns;
  }
  const auto end = static_cast<Nanos>(std::ceil(std::max(own, ready)));
  if (model_.concurrency != 0) ends_.push(end);
  return end;
}

}  // namespace kvstream
