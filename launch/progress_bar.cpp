#include "launch/progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace kvstream {
namespace {

constexpr std::uint64_t kWidth = 30;
constexpr Nanos kInterval_ns = 100 * kMillisecond;

}  // namespace

ProgressBar::ProgressBar(ProgressMode mode, std::uint32_t rank)
    : on_(rank == 0 && (mode == ProgressMode::kOn ||
                        (mode == ProgressMode::kAuto && ::isatty(STDERR_FILENO) == 1))) {}

ProgressBar::~ProgressBar() { wipe(); }

void ProgressBar::show(const std::string& what, std::uint64_t done, std::uint64_t all) {
  if (!on_) return;
  const Nanos now = SteadyClock::instance().now();
  if (what == last_what_ && done < all && now < next_) return;
  next_ = now + kInterval_ns;
  last_what_ = what;
  const std::uint64_t filled = all == 0 ? kWidth : std::min(kWidth, done * kWidth / all);
  fmt::print(stderr, "\r\033[K[{}{}] {:>6} of {}  {}", std::string(filled, '#'),
             std::string(kWidth - filled, ' '), done, all, what);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::wipe() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace kvstream
