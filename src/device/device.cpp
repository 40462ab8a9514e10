#include "device/device.hpp"

#include <algorithm>

namespace kvstream {
namespace {

constexpr Nanos kMeasureNs = 250 * kMillisecond;
constexpr std::uint32_t kMeasureBlocks = 16;
constexpr Nanos kBucketNs = 8 * kMillisecond;
/// Fewer completions than this say less than the prior does.
constexpr std::uint32_t kTrustedBlocks = 4;
constexpr double kWriteCreditBlocksMax = 4;

}  // namespace

Device::Device(Options options)
    : options_(std::move(options)), write_window_(options_.block_bytes) {
  rate_ = measured_ = std::max(options_.prior_rate_bytes_per_s, 1.0) / 1e9;
  latency_ = std::max<Nanos>(options_.prior_latency_ns, 0);
  mean_bytes_ = std::max<std::uint32_t>(options_.block_bytes, 1);
  window_ = 2 * mean_bytes_;
}

void Device::on_submit(Kind kind, std::uint32_t bytes, Nanos now) {
  const bool idle = reads_ + writes_ == 0;
  alone_ = idle && kind == Kind::kRead;
  if (kind == Kind::kRead) {
    if (reads_ == 0) {
      quiet_since_ = now;
      period_open_ = false;
      round_start_ = now;
      round_bytes_ = 0;
      round_counts_ = true;
    }
    ++reads_;
    read_bytes_ += bytes;
    mean_bytes_ = std::max<std::uint64_t>((mean_bytes_ * 15 + bytes) / 16, 1);
  } else {
    ++writes_;
    write_window_.on_submit(bytes, now);
  }
  bytes_ += bytes;
}

void Device::on_complete(Kind kind, std::uint32_t bytes, Nanos submitted, bool good, Nanos now) {
  bytes_ -= std::min<std::uint64_t>(bytes_, bytes);
  if (kind == Kind::kWrite) {
    if (writes_ > 0) --writes_;
    write_window_.on_complete(bytes, submitted, good, now);
    return;
  }
  if (reads_ > 0) --reads_;
  read_bytes_ -= std::min<std::uint64_t>(read_bytes_, bytes);
  if (good) {
    measure_read(bytes, submitted, now);
    note_latency(bytes, now - submitted, now);
  }
  quiet_since_ = now;
  alone_ = false;
  if (reads_ == 0) period_open_ = false;
  tick(now);
}

void Device::measure_read(std::uint32_t bytes, Nanos submitted, Nanos now) {
  round_bytes_ += bytes;
  if (!period_open_) {
    period_open_ = true;
    period_first_ = last_mark_ = now;
  } else if (now > period_first_) {
    const Nanos busy = now - last_mark_;
    last_mark_ = now;
    Bucket* last =
        bucket_count_ == 0 ? nullptr : &buckets_[(bucket_first_ + bucket_count_ - 1) % kBuckets];
    if (last == nullptr || last->busy_ns >= kBucketNs) {
      if (bucket_count_ == kBuckets) {
        const Bucket& oldest = buckets_[bucket_first_];
        sum_.bytes -= oldest.bytes;
        sum_.busy_ns -= oldest.busy_ns;
        sum_.count -= oldest.count;
        bucket_first_ = (bucket_first_ + 1) % kBuckets;
        --bucket_count_;
      }
      last = &buckets_[(bucket_first_ + bucket_count_++) % kBuckets];
      *last = Bucket{};
    }
    last->bytes += bytes;
    last->busy_ns += busy;
    ++last->count;
    sum_.bytes += bytes;
    sum_.busy_ns += busy;
    ++sum_.count;
    while (bucket_count_ > 1) {
      const Bucket& oldest = buckets_[bucket_first_];
      if (sum_.busy_ns - oldest.busy_ns < kMeasureNs || sum_.count - oldest.count < kMeasureBlocks)
        break;
      sum_.bytes -= oldest.bytes;
      sum_.busy_ns -= oldest.busy_ns;
      sum_.count -= oldest.count;
      bucket_first_ = (bucket_first_ + 1) % kBuckets;
      --bucket_count_;
    }
    if (sum_.count >= kTrustedBlocks && sum_.busy_ns > 0)
      measured_ = static_cast<double>(sum_.bytes) / static_cast<double>(sum_.busy_ns);
  }
  // A round is over when a read that began in it has come: one window of completions, whatever the
  // window has become meanwhile. Of reads that began with it, all must come.
  if (submitted > round_start_ ||
      (submitted == round_start_ && round_bytes_ + mean_bytes_ / 2 >= window_))
    end_round(now);
}

void Device::note_latency(std::uint32_t bytes, Nanos elapsed, Nanos) {
  latencies_[latencies_seen_++ % kLatenciesKept] = elapsed;
  // A short tail block would make the lone read of a whole block look faster than it is.
  if (!alone_ || bytes < mean_bytes_ / 2) return;
  lone_[lone_seen_++ % kLoneKept] = elapsed;
  const std::size_t kept = std::min(lone_seen_, kLoneKept);
  latency_ = *std::min_element(lone_.begin(), lone_.begin() + static_cast<std::ptrdiff_t>(kept));
}

void Device::end_round(Nanos now) {
  const Nanos elapsed = now - round_start_;
  const bool counts = round_counts_ && demand_ && elapsed > 0;
  if (counts)
    rounds_[rounds_seen_++ % kRoundsKept] =
        static_cast<double>(round_bytes_) / static_cast<double>(elapsed);
  round_start_ = now;
  round_bytes_ = 0;
  round_counts_ = true;
  if (!counts) return;
  const std::size_t kept = std::min(rounds_seen_, kRoundsKept);
  const double best =
      *std::max_element(rounds_.begin(), rounds_.begin() + static_cast<std::ptrdiff_t>(kept));
  double wanted = 2 * best * static_cast<double>(latency_);
  if (sharers_ > 1) {
    // The best of some rounds is a matter of luck among sharers; the last one is the share.
    const double last = rounds_[(rounds_seen_ - 1) % kRoundsKept];
    wanted =
        0.8 * 2 * last * static_cast<double>(latency_) + 2.0 * static_cast<double>(mean_bytes_);
  }
  wanted = std::min(wanted, 2.0 * static_cast<double>(window_));
  window_ = std::max(static_cast<std::uint64_t>(wanted), 2 * mean_bytes_);
}

void Device::tick(Nanos now) {
  rate_ = measured_;
  if (reads_ == 0) return;
  // What a healthy device needs at most between two completions; more than that is decay.
  const Nanos gap = static_cast<Nanos>(static_cast<double>(mean_bytes_) / measured_);
  const Nanos quiet = now - quiet_since_ - 2 * gap - 2 * latency_;
  if (quiet <= 0) return;
  if (sum_.count >= kTrustedBlocks)
    rate_ = static_cast<double>(sum_.bytes) / static_cast<double>(sum_.busy_ns + quiet);
  rate_ =
      std::min(rate_, static_cast<double>(read_bytes_ + mean_bytes_) / static_cast<double>(quiet));
}

void Device::set_demand(bool unread_work_waits) {
  demand_ = unread_work_waits;
  if (!demand_ || free_places() > 0) round_counts_ = false;
}

Nanos Device::access_latency_ns() const {
  const auto transfer = static_cast<Nanos>(static_cast<double>(mean_bytes_) / measured_);
  return std::max<Nanos>(latency_ - transfer, 0);
}

Nanos Device::p99_ns() const {
  if (latencies_seen_ < 4) return 0;
  // Worked out again only after a few more reads: it is asked for much more often than it moves.
  if (p99_at_ != 0 && latencies_seen_ - p99_at_ < 8) return p99_;
  std::array<Nanos, kLatenciesKept> sorted = latencies_;
  const std::size_t kept = std::min(latencies_seen_, kLatenciesKept);
  auto at = sorted.begin() + static_cast<std::ptrdiff_t>(kept * 99 / 100);
  std::nth_element(sorted.begin(), at, sorted.begin() + static_cast<std::ptrdiff_t>(kept));
  p99_ = *at;
  p99_at_ = latencies_seen_;
  return p99_;
}

std::uint32_t Device::free_places() const {
  const std::uint32_t operations = reads_ + writes_;
  if (operations >= options_.in_flight_max) return 0;
  // To the nearest block: 3.9 blocks that become 3 would slow the growth down.
  const std::uint64_t window = window_ + mean_bytes_ / 2;
  const std::uint64_t room = window > bytes_ ? (window - bytes_) / mean_bytes_ : 0;
  // Reads always get two places, whatever writes were let in while nobody read.
  const std::uint32_t least = reads_ < 2 ? 2 - reads_ : 0;
  const std::uint64_t places = std::max<std::uint64_t>(room, least);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(places, options_.in_flight_max - operations));
}

std::uint32_t Device::free_write_places() const {
  // Never more than the writes' own window, however wide that of reads is: the reads of the next
  // step would stand behind them.
  if (reads_ + writes_ >= options_.in_flight_max || !write_window_.has_room()) return 0;
  return demand_ || reads_ > 0 ? std::min(1U, free_places()) : 1;
}

void Device::earn_write_credit(std::uint32_t read_bytes, double share) {
  const double bounded = std::clamp(share, 0.0, 0.9);
  write_credit_ = std::min(write_credit_ + read_bytes * bounded / (1 - bounded),
                           kWriteCreditBlocksMax * options_.block_bytes);
}

void Device::spend_write_credit(std::uint32_t bytes) {
  write_credit_ = std::max(write_credit_ - bytes, 0.0);
}

}  // namespace kvstream
