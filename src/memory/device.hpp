// The accelerator, as far as host memory is concerned. device_cuda.cpp or device_none.cpp stands
// behind it: the same symbols.
#pragma once

#include <cstdint>
#include <string>

#include "kvstream/block.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// Accelerators that this process can use. 0 when there are none, no driver, or the build has no
/// support for them: that is no error. Any thread; asked once.
std::uint32_t accelerator_count();

/// What is there and why not, for reports: "cuda 13.0, 1 device", "none (built without CUDA)".
const std::string& accelerator_report();

/// Host memory registered with the accelerator, so that copies from and to it need no bounce
/// buffer; unregistered by the destructor. Empty when there is no accelerator.
class HostPin {
 public:
  /// The memory must outlive the pin. kIoError when the driver refuses; where there is no
  /// accelerator the result is ok and empty.
  static Result<HostPin> open(Span memory);
  HostPin() = default;
  HostPin(HostPin&& other) noexcept;
  HostPin& operator=(HostPin&& other) noexcept;
  ~HostPin();

  bool pinned() const noexcept { return memory_.data != nullptr; }

 private:
  explicit HostPin(Span memory) : memory_(memory) {}
  void reset() noexcept;
  Span memory_;
};

}  // namespace kvstream
