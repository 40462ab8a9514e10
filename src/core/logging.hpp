// One named spdlog logger per layer; every line carries the rank; goes to stderr.
#pragma once

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// The layer's logger, made at first use; any thread.
spdlog::logger& logger(const std::string& layer);

/// Sets the rank that lines carry and the level ("error", "warn", "info", "debug", "off").
/// KVSTREAM_LOG, when set, overrides `level`. Call once, before threads start.
Status setup_logging(std::uint32_t rank, const std::string& level);

/// Lets one line through per interval and counts the rest. Any thread.
class LogLimiter {
 public:
  explicit LogLimiter(Nanos interval_ns = 5 * kSecond) : interval_ns_(interval_ns) {}
  /// True when a line may be written now; `suppressed` then says how many were not.
  bool admit(Nanos now, std::uint64_t& suppressed);

 private:
  Nanos interval_ns_;
  std::atomic<Nanos> next_{0};
  std::atomic<std::uint64_t> suppressed_{0};
};

}  // namespace kvstream
