#include "device/write_window.hpp"

#include <algorithm>

namespace kvstream {
namespace {

constexpr double kBusyKept_ns = 0.25e9;  // as long as reads look back

}  // namespace

WriteWindow::WriteWindow(std::uint32_t block_bytes)
    : mean_(std::max(1U, block_bytes)), window_(2 * mean_) {}

void WriteWindow::on_submit(std::uint32_t bytes, Nanos now) {
  if (bytes_ == 0) {
    round_start_ = now;
    round_bytes_ = 0;
    was_full_ = false;
    alone_since_ = now;
    busy_mark_ = now;
  }
  bytes_ += bytes;
  mean_ = std::max<std::uint64_t>((mean_ * 15 + bytes) / 16, 1);
  was_full_ = was_full_ || !has_room();
}

void WriteWindow::on_complete(std::uint32_t bytes, Nanos submitted, bool good, Nanos now) {
  bytes_ -= std::min<std::uint64_t>(bytes_, bytes);
  busy_ns_ += static_cast<double>(now - busy_mark_);
  busy_mark_ = now;
  if (!good) return;
  busy_bytes_ += static_cast<double>(bytes);
  if (busy_ns_ > kBusyKept_ns) {
    busy_ns_ /= 2;
    busy_bytes_ /= 2;
  }
  if (submitted == alone_since_) {  // what came behind it did not hold it up
    latencies_[latencies_seen_++ % kLatenciesKept] = now - submitted;
    alone_since_ = -1;
  }
  round_bytes_ += bytes;
  if (round_bytes_ >= window_) end_round(now);
}

void WriteWindow::end_round(Nanos now) {
  const Nanos elapsed = now - round_start_;
  const bool counts = was_full_ && elapsed > 0 && latencies_seen_ > 0;
  if (counts) {
    rounds_[rounds_seen_++ % kRoundsKept] =
        static_cast<double>(round_bytes_) / static_cast<double>(elapsed);
    const auto rounds = static_cast<std::ptrdiff_t>(std::min(rounds_seen_, kRoundsKept));
    const auto latencies = static_cast<std::ptrdiff_t>(std::min(latencies_seen_, kLatenciesKept));
    const double best = *std::max_element(rounds_.begin(), rounds_.begin() + rounds);
    const Nanos least = *std::min_element(latencies_.begin(), latencies_.begin() + latencies);
    const double wanted =
        std::min(2 * best * static_cast<double>(least), 2.0 * static_cast<double>(window_));
    window_ = std::max(static_cast<std::uint64_t>(wanted), 2 * mean_);
  }
  round_start_ = now;
  round_bytes_ = 0;
  was_full_ = !has_room();
}

}  // namespace kvstream
