// The rate of a tier through its own interface: for throttled tiers.
#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "replay/calibration.hpp"

namespace kvstream {
namespace {

constexpr Nanos kSampleEvery = 5 * kMillisecond;
constexpr Nanos kWaitMax = 5 * kMillisecond;
constexpr Nanos kDrainMax = 10 * kSecond;
constexpr std::size_t kAlignment = 4096;

/// Keeps `in_flight` reads of a tier going; one buffer each.
class TierReader {
 public:
  TierReader(Tier& tier, std::span<const TierSlot> slots) : tier_(tier), slots_(slots) {}

  Status open(std::uint32_t in_flight) {
    std::uint32_t largest = 0;
    for (const TierSlot& slot : slots_) largest = std::max(largest, slot.size_bytes);
    const std::size_t step = std::max<std::size_t>(kAlignment, tier_.traits().alignment_bytes);
    lane_bytes_ = (largest + step - 1) / step * step;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(step, lane_bytes_ * in_flight)));
    if (!memory_) {
      return {Code::kOverloaded, fmt::format("no memory for {} reads of {} B", in_flight, largest)};
    }
    spans_.resize(in_flight);
    sizes_.resize(in_flight);
    for (std::uint32_t lane = 0; lane < in_flight; ++lane) free_.push_back(lane);
    return Status::ok();
  }

  void submit() {
    while (!free_.empty()) {
      const std::uint32_t lane = free_.back();
      const TierSlot& slot = slots_[next_ % slots_.size()];
      const std::size_t alignment = std::max(1U, tier_.traits().alignment_bytes);
      const std::size_t rounded = (slot.size_bytes + alignment - 1) / alignment * alignment;
      spans_[lane] = {memory_.get() + lane * lane_bytes_, rounded};
      const ReadOp op{lane, slot.at, slot.size_bytes, {&spans_[lane], 1}};
      if (tier_.submit_reads({&op, 1}) == 0) return;
      sizes_[lane] = slot.size_bytes;
      free_.pop_back();
      ++next_;
    }
  }

  /// The first error of what has completed; all of it gives its buffer back.
  Status collect() {
    std::array<Completion, 64> done;
    const std::size_t count = tier_.poll(done);
    Status status;
    for (std::size_t i = 0; i < count; ++i) {
      const auto lane = static_cast<std::uint32_t>(done[i].id);
      if (lane >= sizes_.size()) continue;
      free_.push_back(lane);
      if (done[i].code == Code::kOk) {
        bytes_ += sizes_[lane];
      } else if (status.is_ok()) {
        status = {done[i].code, fmt::format("a read of {} B failed while tier {} was calibrated",
                                            sizes_[lane], tier_.traits().name)};
      }
    }
    return status;
  }

  void wait(Nanos until) const {
    const Nanos now = SteadyClock::instance().now();
    const Nanos wait_ns = std::min({until - now, tier_.next_event() - now, kWaitMax});
    if (wait_ns <= 0) return;
    const timespec timeout{0, static_cast<long>(wait_ns)};
    pollfd fd{tier_.wait_fd(), POLLIN, 0};
    ::ppoll(&fd, fd.fd >= 0 ? 1 : 0, &timeout, nullptr);
  }

  /// False: the tier may still write into the buffers, which are then left to it for good.
  bool drain(Status& status) {
    const Nanos until = SteadyClock::instance().now() + kDrainMax;
    while (free_.size() < sizes_.size()) {
      if (SteadyClock::instance().now() >= until) {
        static_cast<void>(memory_.release());
        return false;
      }
      Status late = collect();
      if (status.is_ok()) status = std::move(late);
      wait(until);
    }
    return true;
  }

  std::uint64_t bytes() const { return bytes_; }

 private:
  struct FreeMemory {
    void operator()(std::byte* data) const { std::free(data); }
  };

  Tier& tier_;
  std::span<const TierSlot> slots_;
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::size_t lane_bytes_ = 0, next_ = 0;
  std::vector<Span> spans_;
  std::vector<std::uint32_t> sizes_, free_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<DeviceRate> measure_tier_rate(Tier& tier, std::span<const TierSlot> slots,
                                     std::uint32_t in_flight, const CalibrationOptions& options) {
  const std::string& name = tier.traits().name;
  if (slots.empty() || in_flight == 0) {
    return failure(Code::kInvalidArgument, fmt::format("nothing to read on tier {}", name));
  }
  TierReader reader(tier, slots);
  in_flight = std::min(in_flight, std::max(1U, tier.traits().in_flight_max));
  if (Status status = reader.open(in_flight); !status.is_ok()) return failure(std::move(status));

  std::vector<RateSample> samples;
  const Nanos start = SteadyClock::instance().now();
  const Nanos from = start + options.discard_ns, until = from + options.measure_ns;
  Nanos next_sample = from;
  Status status;
  for (Nanos now = start; now < until && status.is_ok(); now = SteadyClock::instance().now()) {
    status = options.stopped() ? calibration_stopped() : reader.collect();
    reader.submit();
    if (now >= next_sample) {
      samples.push_back({static_cast<double>(now) * 1e-9, static_cast<double>(reader.bytes())});
      next_sample = now + kSampleEvery;
    }
    reader.wait(std::min(until, next_sample));
  }
  if (!reader.drain(status)) {
    return failure(Code::kTimedOut, fmt::format("tier {} holds reads for more than 10 s", name));
  }
  if (!status.is_ok()) return failure(std::move(status));

  DeviceRate rate;
  rate.device_id = tier.traits().device_id;
  rate.mode = tier.report().mode;
  rate.asked_bytes = reader.bytes();
  rate.bytes_per_s = slope_bytes_per_s(samples);
  if (!(rate.bytes_per_s > 0)) {
    return failure(Code::kTimedOut, fmt::format("tier {} gave {} B while it was calibrated; "
                                                "measure for longer",
                                                name, rate.asked_bytes));
  }
  return rate;
}

}  // namespace kvstream
