#include "replay/step_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "core/units.hpp"
#include "memory/buffer_pool.hpp"

namespace kvstream {
namespace {

constexpr std::size_t kAlignment = 2U << 20U;
constexpr Nanos kPoll_ns = kMillisecond;

}  // namespace

Result<TouchedMemory> TouchedMemory::map(std::uint64_t size_bytes) {
  TouchedMemory memory;
  memory.mapped_bytes_ = size_bytes + kAlignment;
  memory.mapped_ = ::mmap(nullptr, memory.mapped_bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory.mapped_ == MAP_FAILED) {
    memory.mapped_ = nullptr;
    return failure(Code::kNoSpace, "failed to map " + format_size(size_bytes) +
                                       " for a step's blocks (" + std::strerror(errno) + ")");
  }
  auto address = reinterpret_cast<std::uintptr_t>(memory.mapped_);
  address = (address + kAlignment - 1) / kAlignment * kAlignment;
  memory.span_ = {reinterpret_cast<std::byte*>(address), size_bytes};
  // A first touch inside a measured read would be charged to the read.
  ::madvise(memory.span_.data, size_bytes, MADV_HUGEPAGE);
  for (std::uint64_t at = 0; at < size_bytes; at += 4096) memory.span_.data[at] = std::byte{0};
  return memory;
}

TouchedMemory::TouchedMemory(TouchedMemory&& other) noexcept
    : span_(std::exchange(other.span_, {})),
      mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

TouchedMemory& TouchedMemory::operator=(TouchedMemory&& other) noexcept {
  std::swap(span_, other.span_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

TouchedMemory::~TouchedMemory() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

Result<std::unique_ptr<StepMemory>> StepMemory::open(Engine& engine, const Clock& clock,
                                                     std::uint64_t size_bytes) {
  if (Status status =
          check_memory(2 * size_bytes, "two steps' blocks (a smaller --batch takes less)");
      !status.is_ok()) {
    return failure(status);
  }
  std::unique_ptr<StepMemory> memory(new StepMemory(engine, clock, size_bytes));
  for (int i = 0; i < 2; ++i) {
    if (Status status = memory->add(); !status.is_ok()) return failure(status);
  }
  return memory;
}

Status StepMemory::add() {
  auto buffer = std::make_unique<Buffer>();
  auto mapped = TouchedMemory::map(size_bytes_);
  if (!mapped) return mapped.error();
  buffer->memory = std::move(*mapped);
  if (Status status = engine_.register_buffer(buffer->memory.span()); !status.is_ok())
    return status;
  buffers_.push_back(std::move(buffer));
  return Status::ok();
}

bool StepMemory::idle(Buffer& buffer) {
  if (buffer.load && !buffer.load->drained()) return false;
  if (buffer.save && !buffer.save->wait_staged(0)) return false;
  buffer.load.reset();
  buffer.save.reset();
  return true;
}

Result<StepMemory::Buffer*> StepMemory::acquire(Nanos deadline) {
  for (;;) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      Buffer& buffer = *buffers_[next_++ % buffers_.size()];
      if (idle(buffer)) return &buffer;
    }
    if (buffers_.size() < kBuffersMax && check_memory(size_bytes_, "a step's blocks").is_ok()) {
      if (Status status = add(); !status.is_ok()) return failure(status);
      continue;
    }
    if (clock_.now() >= deadline) {
      return failure(
          Code::kTimedOut,
          "all " + std::to_string(buffers_.size()) +
              " step buffers are still in use by late reads or saves that were not staged");
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kPoll_ns));
  }
}

}  // namespace kvstream
