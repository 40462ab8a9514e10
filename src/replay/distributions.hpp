// Draws that the workloads need, out of Random.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "replay/random.hpp"

namespace kvstream {

/// Standard normal (Box and Muller 1958).
inline double normal(Random& random) {
  const double radius = std::sqrt(random.exponential(2.0));
  return radius * std::cos(2.0 * std::numbers::pi * random.unit());
}
/// `sigma` is the standard deviation of the logarithm.
inline double log_normal(Random& random, double median, double sigma) {
  return median * std::exp(sigma * normal(random));
}
/// Mean `shape`, coefficient of variation 1/sqrt(shape) (Marsaglia and Tsang 2000; below a shape of
/// 1 by their boost, which needs no rejection of its own).
inline double gamma(Random& random, double shape) {
  if (shape < 1) {
    const double boosted = gamma(random, shape + 1);
    return boosted * std::pow(1.0 - random.unit(), 1.0 / shape);
  }
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = normal(random);
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1.0 - random.unit()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}
/// Uniform within +-50 % of `mean`.
inline std::uint32_t around(Random& random, std::uint32_t mean) {
  return static_cast<std::uint32_t>(random.between(mean - mean / 2, mean + mean / 2));
}

}  // namespace kvstream
