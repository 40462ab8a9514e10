// Texts are put together without fmt: its constexpr functions do not pass through nvcc.
#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "memory/device.hpp"

namespace kvstream {
namespace {

struct Accelerators {
  std::uint32_t count = 0;
  std::string report;
};

// A machine without a GPU, without a driver or with one that is too old for this runtime is an
// ordinary machine.
bool means_no_gpu(cudaError_t error) {
  return error == cudaErrorStubLibrary || error == cudaErrorInsufficientDriver ||
         error == cudaErrorNoDevice;
}

Accelerators look() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    // The runtime keeps the error for the next caller that asks; it has been dealt with here.
    (void)cudaGetLastError();
    const std::string reason = cudaGetErrorString(error);
    return {0, (means_no_gpu(error) ? "none (" : "none (failed to count GPUs: ") + reason + ")"};
  }
  int version = 0;
  (void)cudaRuntimeGetVersion(&version);
  const std::string number =
      std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  return {static_cast<std::uint32_t>(count),
          "cuda " + number + ", " + std::to_string(count) + (count == 1 ? " device" : " devices")};
}

const Accelerators& accelerators() {
  static const Accelerators found = look();
  return found;
}

}  // namespace

std::uint32_t accelerator_count() { return accelerators().count; }

const std::string& accelerator_report() { return accelerators().report; }

Result<HostPin> HostPin::open(Span memory) {
  if (accelerator_count() == 0 || memory.size_bytes == 0) return HostPin();
  const cudaError_t error =
      cudaHostRegister(memory.data, memory.size_bytes, cudaHostRegisterPortable);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return failure(Code::kIoError,
                   "failed to pin " + std::to_string(memory.size_bytes) + " B of host memory (" +
                       cudaGetErrorString(error) +
                       "); copies to the GPU take a bounce buffer (raise `ulimit -l`)");
  }
  return HostPin(memory);
}

HostPin::HostPin(HostPin&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

HostPin& HostPin::operator=(HostPin&& other) noexcept {
  if (this != &other) {
    reset();
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

HostPin::~HostPin() { reset(); }

void HostPin::reset() noexcept {
  if (memory_.data == nullptr) return;
  // At exit the runtime may be gone already; then the driver has unpinned everything.
  (void)cudaHostUnregister(memory_.data);
  (void)cudaGetLastError();
  memory_ = {};
}

}  // namespace kvstream
