#include <utility>

#include "memory/device.hpp"

namespace kvstream {

std::uint32_t accelerator_count() { return 0; }

const std::string& accelerator_report() {
  static const std::string report = "none (built without CUDA)";
  return report;
}

Result<HostPin> HostPin::open(Span /*memory*/) { return HostPin(); }

HostPin::HostPin(HostPin&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

HostPin& HostPin::operator=(HostPin&& other) noexcept {
  memory_ = std::exchange(other.memory_, {});
  return *this;
}

HostPin::~HostPin() = default;

void HostPin::reset() noexcept { memory_ = {}; }

}  // namespace kvstream
