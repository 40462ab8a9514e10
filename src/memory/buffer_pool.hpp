// One mapped region cut into equal slabs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/status.hpp"
#include "memory/memory_limit.hpp"

namespace kvstream {

/// Owned by the engine; take() and give() from any thread, without a lock. Bounded by its size.
/// The memory is touched at open (first touch is slow), aligned to 2 MiB, huge pages when there.
class BufferPool {
 public:
  /// kNone: addresses alone, which nobody may touch (bytes that are only modelled).
  enum class Backing : std::uint8_t { kMemory, kNone };
  struct Options {
    std::uint64_t bytes = 0;       ///< rounded down to whole slabs
    std::uint32_t slab_bytes = 0;  ///< rounded up to 4 KiB
    int numa_node = -1;            ///< -1 = do not bind
    Backing backing = Backing::kMemory;
  };
  static Result<std::unique_ptr<BufferPool>> open(Options options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// A slab, or null when all are taken.
  std::byte* take() noexcept;
  /// Only what take() gave, once; null is fine.
  void give(std::byte* slab) noexcept;
  std::uint32_t slab_bytes() const noexcept { return slab_bytes_; }
  std::uint32_t count() const noexcept { return count_; }
  std::uint32_t free_count() const noexcept { return free_.load(std::memory_order_relaxed); }
  /// What was got, e.g. "2 MiB pages, node 0".
  const std::string& mode() const noexcept { return mode_; }
  Span region() const noexcept { return {base_, std::size_t{slab_bytes_} * count_}; }
  /// From now on the destructor leaves the memory mapped (a device may still write into it).
  void abandon() noexcept { abandoned_ = true; }

 private:
  BufferPool() = default;
  Status map_memory(int numa_node);
  std::byte* base_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::uint32_t slab_bytes_ = 0;
  std::uint32_t count_ = 0;
  std::atomic<std::uint32_t> free_{0};
  std::atomic<std::uint64_t> head_{0};  ///< index + 1 in the low half, a tag in the high half
  std::vector<std::atomic<std::uint32_t>> next_;
  std::string mode_;
  bool abandoned_ = false;
};

}  // namespace kvstream
