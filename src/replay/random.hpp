// Random numbers that are the same on every machine and library for a seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvstream {

/// Mixes the bits of a word well; a bijection (the finaliser of splitmix64, Steele et al. 2014).
inline std::uint64_t mix64(std::uint64_t word) noexcept {
  word += 0x9e3779b97f4a7c15ULL;
  word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27U)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31U);
}

/// One thread. Value type.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix64(seed)) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix64(state_);
  }
  /// In [0, 1).
  double unit() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }
  /// In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + static_cast<std::uint64_t>(unit() * static_cast<double>(high - low + 1));
  }
  double exponential(double mean) { return -mean * std::log1p(-unit()); }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[between(0, i - 1)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvstream
