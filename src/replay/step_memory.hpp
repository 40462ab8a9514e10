// Memory that a step's blocks land in and are saved from: the stand-in for an engine's KV pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvstream/engine.hpp"

namespace kvstream {

/// Zeroed, mapped and touched, aligned to 2 MiB; unmapped at the end.
class TouchedMemory {
 public:
  static Result<TouchedMemory> map(std::uint64_t size_bytes);
  TouchedMemory() = default;
  TouchedMemory(TouchedMemory&& other) noexcept;
  TouchedMemory& operator=(TouchedMemory&& other) noexcept;
  ~TouchedMemory();
  Span span() const { return span_; }

 private:
  Span span_;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

/// A few buffers, each as large as the largest step, used in turn: one may be loaded into while an
/// earlier one waits for its saves to be staged or a late read to drain. Owned by one rank's loop,
/// one thread. Bounded by kBuffersMax buffers.
class StepMemory {
 public:
  static constexpr std::uint32_t kBuffersMax = 3;

  /// `size_bytes` of the largest step. Memory that is not there is an error.
  static Result<std::unique_ptr<StepMemory>> open(Engine& engine, const Clock& clock,
                                                  std::uint64_t size_bytes);

  struct Buffer {
    TouchedMemory memory;
    Ticket load;
    SaveTicket save;
  };
  /// One that nothing reads from or writes into. kTimedOut when none became free in time.
  Result<Buffer*> acquire(Nanos deadline);
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  StepMemory(Engine& engine, const Clock& clock, std::uint64_t size_bytes)
      : engine_(engine), clock_(clock), size_bytes_(size_bytes) {}
  Status add();
  static bool idle(Buffer& buffer);

  Engine& engine_;
  const Clock& clock_;
  std::uint64_t size_bytes_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::size_t next_ = 0;
};

}  // namespace kvstream
