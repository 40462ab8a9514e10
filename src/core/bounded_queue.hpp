// A bounded queue for many producers and many consumers, without locks.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace kvstream {

/// Each cell carries a sequence number that says whose turn it is (the scheme of D. Vyukov's
/// bounded MPMC queue). Any thread may push and pop; neither ever waits. The capacity is rounded
/// up to a power of two.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity) - 1),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  /// False when full; `value` is untouched then.
  bool push(T&& value) {
    std::size_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      const auto turn = cell.turn.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::ptrdiff_t>(turn - at);
      if (ahead < 0) return false;
      if (ahead > 0) {
        at = tail_.load(std::memory_order_relaxed);
      } else if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.value = std::move(value);
        cell.turn.store(at + 1, std::memory_order_release);
        return true;
      }
    }
  }

  /// False when empty.
  bool pop(T& value) {
    std::size_t at = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      const auto turn = cell.turn.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::ptrdiff_t>(turn - (at + 1));
      if (ahead < 0) return false;
      if (ahead > 0) {
        at = head_.load(std::memory_order_relaxed);
      } else if (head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        value = std::move(cell.value);
        cell.value = T{};
        cell.turn.store(at + mask_ + 1, std::memory_order_release);
        return true;
      }
    }
  }

 private:
  struct Cell {
    std::atomic<std::size_t> turn{0};
    T value{};
  };
  std::size_t mask_;
  std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace kvstream
