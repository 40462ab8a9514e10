// Fake tier and placer with an injected clock, and a watch on memory that is being written.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/tier.hpp"
#include "step/placer.hpp"

namespace kvstream::rig {

/// Small blocks stand for large ones: only times matter.
inline constexpr std::uint32_t kBlockBytes = 64;
inline constexpr double kMib = 1 << 20;
/// A rate for real MiB blocks, in bytes of our small blocks per second.
inline double scaled(double bytes_per_s) { return bytes_per_s * kBlockBytes / kMib; }

inline BlockKey key_of(std::uint64_t number) {
  BlockKey key;
  const std::uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15ULL;
  std::memcpy(key.bytes.data(), &mixed, 8);
  std::memcpy(key.bytes.data() + 8, &number, 8);
  return key;
}
inline std::uint64_t number_of(const BlockKey& key) {
  std::uint64_t number = 0;
  std::memcpy(&number, key.bytes.data() + 8, 8);
  return number;
}
inline void fill(std::byte* to, std::size_t size, std::uint64_t number) {
  for (std::size_t i = 0; i < size; ++i)
    to[i] = static_cast<std::byte>((number * 31 + i * 7 + 5) >> (i % 3));
}
inline std::uint64_t sum_of(const std::byte* data, std::size_t size) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<std::uint64_t>(data[i])) * 0x100000001b3ULL;
  return hash;
}
inline std::uint64_t sum_for(std::uint64_t number, std::uint32_t size) {
  std::vector<std::byte> bytes(size);
  fill(bytes.data(), size, number);
  return sum_of(bytes.data(), size);
}

/// Memory that a device or a copy may write into now.
class WriteWatch {
 public:
  void begin(std::span<const Span> spans) {
    for (const Span& span : spans) ++writing_[span.data];
  }
  void end(std::span<const Span> spans) {
    for (const Span& span : spans)
      if (--writing_[span.data] == 0) writing_.erase(span.data);
  }
  bool writing(const std::byte* data) const { return writing_.count(data) != 0; }

 private:
  std::unordered_map<const std::byte*, int> writing_;
};

/// One queue with a rate and a latency; slot number = block number. Bytes are written at the end of
/// a read, right or wrong.
class FakeTier final : public Tier {
 public:
  struct Faults {
    double error = 0, bad = 0;
    Nanos stall_from = kNever, stall_for = 0;
    Nanos slow_at = kNever;
    double slow = 1;
    bool dead = false;
  };
  FakeTier(const FakeClock& clock, WriteWatch& watch, double bytes_per_ns, Nanos lone_latency)
      : rate(bytes_per_ns), latency(lone_latency), clock_(clock), watch_(watch) {
    traits_.kind = "fake";
    traits_.direct_landing = true;
  }

  const TierTraits& traits() const override { return traits_; }
  TierTraits& traits() { return traits_; }
  Result<SlotRef> reserve(std::uint32_t) override { return failure(Code::kNoSpace, "fake"); }
  void free(SlotRef) override {}
  std::size_t submit_reads(std::span<const ReadOp> ops) override {
    std::size_t taken = 0;
    for (const ReadOp& op : ops) {
      if (ops_.size() >= take_max) break;
      const Nanos now = clock_.now();
      const Nanos start = std::max(free_at_, now);
      // A slow-down takes hold in the middle of what is under way.
      Nanos end = start + static_cast<Nanos>(op.size_bytes / rate);
      if (end > faults.slow_at) {
        const double done =
            start < faults.slow_at ? static_cast<double>(faults.slow_at - start) * rate : 0;
        end = std::max(start, faults.slow_at) +
              static_cast<Nanos>((op.size_bytes - done) / (rate * faults.slow));
      }
      free_at_ = end;
      ops_.push_back({op, stalled(end + latency)});
      watch_.begin(op.into);
      ++reads;
      peak = std::max(peak, ops_.size());
      ++taken;
    }
    return taken;
  }
  std::size_t submit_writes(std::span<const WriteOp>) override { return 0; }
  std::size_t poll(std::span<Completion> out) override {
    std::size_t count = 0;
    for (std::size_t i = 0; i < ops_.size() && count < out.size();) {
      if (ops_[i].at > clock_.now()) {
        ++i;
        continue;
      }
      const ReadOp op = ops_[i].op;
      ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(i));
      watch_.end(op.into);
      const double dice = std::uniform_real_distribution<>(0, 1)(random);
      const bool error = faults.dead || dice < faults.error;
      write(op, error || dice < faults.error + faults.bad);
      out[count++] = {op.id, error ? Code::kIoError : Code::kOk, op.size_bytes};
    }
    return count;
  }
  int wait_fd() const override { return -1; }
  Nanos next_event() const override {
    Nanos next = kNever;
    for (const Pending& op : ops_) next = std::min(next, op.at);
    return next;
  }
  const std::byte* view(SlotRef at) const override {
    if (!traits_.addressable) return nullptr;
    auto& bytes = memory_[at.slot];
    if (bytes.empty()) {
      bytes.resize(block_bytes);
      fill(bytes.data(), bytes.size(), at.slot);
      if (faults.bad >= 1) bytes[3] ^= std::byte{0x10};
    }
    return bytes.data();
  }
  std::size_t changes(std::span<CatalogChange>) override { return 0; }
  void recheck(const CatalogChange&) override {}
  Status chore() override { return Status::ok(); }
  TierReport report() const override { return {}; }

  /// Ends everything that is out, with an error.
  void flush() {
    faults.dead = true;
    for (Pending& op : ops_) op.at = 0;
  }
  std::size_t out() const { return ops_.size(); }

  double rate;
  Nanos latency;
  Faults faults;
  std::mt19937_64 random{1};
  std::size_t take_max = SIZE_MAX;
  std::uint32_t block_bytes = kBlockBytes;
  std::uint64_t reads = 0;
  std::size_t peak = 0;

 private:
  struct Pending {
    ReadOp op;
    Nanos at;
  };
  Nanos stalled(Nanos at) const {
    if (at < faults.stall_from || at - faults.stall_from >= faults.stall_for) return at;
    return faults.stall_from + faults.stall_for + (at - faults.stall_from) / 100;
  }
  void write(const ReadOp& op, bool wrong) {
    std::vector<std::byte> bytes(op.size_bytes);
    fill(bytes.data(), bytes.size(), op.at.slot);
    if (wrong) bytes[random() % bytes.size()] ^= std::byte{0x21};
    std::size_t from = 0;
    for (const Span& span : op.into) {
      const std::size_t count = std::min(span.size_bytes, bytes.size() - from);
      std::memcpy(span.data, bytes.data() + from, count);
      from += count;
    }
  }

  TierTraits traits_;
  const FakeClock& clock_;
  WriteWatch& watch_;
  std::vector<Pending> ops_;
  Nanos free_at_ = 0;
  mutable std::map<std::uint32_t, std::vector<std::byte>> memory_;
};

/// Copies after `delay`, one after the other.
class FakePlacer final : public Placer {
 public:
  FakePlacer(const FakeClock& clock, WriteWatch& watch) : clock_(clock), watch_(watch) {}
  bool submit(const PlaceJob& job) override {
    if (jobs_.size() >= ring_max) return false;
    free_at_ = std::max(free_at_, clock_.now()) + delay;
    jobs_.push_back({job, free_at_});
    if (job.from != nullptr) watch_.begin(job.into);
    ++submitted;
    return true;
  }
  std::size_t poll(std::span<PlaceDone> out) override {
    std::size_t count = 0;
    while (!jobs_.empty() && count < out.size() && jobs_.front().at <= clock_.now()) {
      const PlaceJob job = jobs_.front().job;
      jobs_.erase(jobs_.begin());
      if (job.from != nullptr) watch_.end(job.into);
      out[count++] = {job.id, place(job)};
    }
    return count;
  }
  Nanos next_event() const { return jobs_.empty() ? kNever : jobs_.front().at; }

  Nanos delay = 0;
  std::size_t ring_max = 256;
  std::uint64_t submitted = 0;

 private:
  struct Pending {
    PlaceJob job;
    Nanos at;
  };
  static bool place(const PlaceJob& job) {
    if (job.from == nullptr) {
      std::vector<std::byte> bytes;
      for (const Span& span : job.into)
        bytes.insert(bytes.end(), span.data, span.data + span.size_bytes);
      return !job.verify || sum_of(bytes.data(), job.size_bytes) == job.checksum;
    }
    if (job.verify && sum_of(job.from, job.size_bytes) != job.checksum) return false;
    std::size_t from = 0;
    for (const Span& span : job.into) {
      std::memcpy(span.data, job.from + from, span.size_bytes);
      from = (from + span.size_bytes) % job.size_bytes;
    }
    return true;
  }

  const FakeClock& clock_;
  WriteWatch& watch_;
  std::vector<Pending> jobs_;
  Nanos free_at_ = 0;
};

}  // namespace kvstream::rig
