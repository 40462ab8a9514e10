#include "replay/fit.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core/checksum.hpp"
#include "engine/copy_threads.hpp"
#include "replay/payload.hpp"

namespace kvstream {
namespace {

constexpr std::size_t kAlign = 4096;
constexpr Nanos kWaitMax = 2 * kMillisecond;
constexpr std::uint64_t kWriteId = std::uint64_t{1} << 32U;
constexpr double kDisturbanceMin = 0.04;
constexpr std::size_t kCopiedBytes = 128U << 20U;

BlockKey key_of(std::uint64_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  key.bytes[15] = 0xf1;
  return key;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct FreeMemory {
  void operator()(std::byte* data) const { std::free(data); }
};

/// Bytes per second of each direction while both are kept at their depths.
struct Rates {
  double read = 0, write = 0;
};

class Fitter {
 public:
  Fitter(Tier& tier, const FitOptions& options)
      : tier_(tier), options_(options), give_up_(now() + options.give_up_ns) {}

  Result<DeviceModel> run();
  ~Fitter() {
    for (const SlotRef& slot : slots_) tier_.free(slot);
  }

 private:
  struct Lane {
    Nanos submitted = 0;
    Span into;
    std::byte* memory = nullptr;
    bool busy = false;
  };

  static Nanos now() { return SteadyClock::instance().now(); }
  Status open();
  Result<SlotRef> take_slot();
  Status write_all();
  /// Keeps `reads` and `writes` operations going for a phase.
  Result<Rates> saturate(std::uint32_t reads, std::uint32_t writes);
  Result<double> lone_s(Transfer transfer);
  bool submit(std::uint32_t lane, Transfer transfer, std::size_t slot);
  Status renew(std::size_t slot);
  Status collect(std::uint64_t& read_bytes, std::uint64_t& written_bytes);
  Status drain();
  void wait() const;
  Status check_time() const {
    return now() < give_up_ ? Status::ok()
                            : Status{Code::kTimedOut, "tier " + tier_.traits().name +
                                                          " did not end its operations in time"};
  }

  Tier& tier_;
  FitOptions options_;
  Nanos give_up_;
  std::size_t padded_ = 0;
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::uint64_t checksum_ = 0;
  std::vector<Lane> lanes_;
  std::vector<SlotRef> slots_;
  std::size_t written_ = 0, next_read_ = 0, next_write_ = 0;
  double last_lone_s_ = 0;
};

Status Fitter::open() {
  const std::size_t alignment = std::max<std::size_t>(kAlign, tier_.traits().alignment_bytes);
  padded_ = (options_.block_bytes + alignment - 1) / alignment * alignment;
  // Both directions at once must find places.
  options_.depth = std::clamp(options_.depth, 1U, std::max(1U, tier_.traits().in_flight_max / 2));
  lanes_.resize(2ULL * options_.depth);
  memory_.reset(
      static_cast<std::byte*>(std::aligned_alloc(alignment, padded_ * (lanes_.size() + 1))));
  if (!memory_) return {Code::kOverloaded, "no memory for the blocks that are moved"};
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].memory = memory_.get() + (i + 1) * padded_;
    lanes_[i].into = {lanes_[i].memory, padded_};
  }
  fill_payload(key_of(0), {memory_.get(), padded_});
  checksum_ = checksum({memory_.get(), options_.block_bytes});
  const std::size_t wanted = std::max<std::uint64_t>(2, options_.bytes / padded_);
  while (slots_.size() < wanted) {
    auto slot = take_slot();
    if (!slot) break;
    slots_.push_back(*slot);
  }
  if (slots_.size() >= 2) return Status::ok();
  return {Code::kNoSpace, fmt::format("tier {} has no room for two blocks of {} B; raise its cap",
                                      tier_.traits().name, options_.block_bytes)};
}

/// A segment may have to be made first.
Result<SlotRef> Fitter::take_slot() {
  for (;;) {
    auto slot = tier_.reserve(options_.block_bytes);
    if (slot || slot.error().code() != Code::kOverloaded) return slot;
    if (Status status = tier_.chore(); !status.is_ok()) return failure(status);
    if (Status status = check_time(); !status.is_ok()) return failure(status);
  }
}

bool Fitter::submit(std::uint32_t index, Transfer transfer, std::size_t slot) {
  Lane& lane = lanes_[index];
  lane.submitted = now();
  std::size_t taken = 0;
  if (transfer == Transfer::kRead) {
    const ReadOp op{index, slots_[slot], options_.block_bytes, {&lane.into, 1}};
    taken = tier_.submit_reads({&op, 1});
  } else {
    const WriteOp op{kWriteId | index,     key_of(slot), slots_[slot],
                     options_.block_bytes, checksum_,    memory_.get()};
    taken = tier_.submit_writes({&op, 1});
  }
  lane.busy = taken == 1;
  return lane.busy;
}

/// A slot is written once: to write again, another is taken for it.
Status Fitter::renew(std::size_t slot) {
  tier_.free(slots_[slot]);
  auto fresh = take_slot();
  if (!fresh) {
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(slot));
    return fresh.error();
  }
  slots_[slot] = *fresh;
  return Status::ok();
}

void Fitter::wait() const {
  const Nanos left = std::clamp<Nanos>(tier_.next_event() - now(), 0, kWaitMax);
  if (left == 0) return;
  const timespec timeout{0, static_cast<long>(left)};
  pollfd fd{tier_.wait_fd(), POLLIN, 0};
  ::ppoll(&fd, fd.fd >= 0 ? 1 : 0, &timeout, nullptr);
}

Status Fitter::collect(std::uint64_t& read_bytes, std::uint64_t& written_bytes) {
  std::array<Completion, 64> done;
  const std::size_t count = tier_.poll(done);
  for (std::size_t i = 0; i < count; ++i) {
    const bool write = (done[i].id & kWriteId) != 0;
    Lane& lane = lanes_[done[i].id & ~kWriteId];
    lane.busy = false;
    last_lone_s_ = static_cast<double>(now() - lane.submitted) * 1e-9;
    if (done[i].code != Code::kOk) {
      return {done[i].code, fmt::format("tier {} failed to move a block", tier_.traits().name)};
    }
    (write ? written_bytes : read_bytes) += options_.block_bytes;
  }
  return Status::ok();
}

Status Fitter::drain() {
  std::uint64_t ignored = 0;
  while (std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.busy; })) {
    if (Status status = check_time(); !status.is_ok()) {
      static_cast<void>(memory_.release());  // the tier may still use it
      return status;
    }
    if (Status status = collect(ignored, ignored); !status.is_ok()) return status;
    wait();
  }
  return Status::ok();
}

Status Fitter::write_all() {
  std::uint64_t ignored = 0;
  while (written_ < slots_.size()) {
    for (std::uint32_t i = 0; i < options_.depth && written_ < slots_.size(); ++i) {
      if (!lanes_[i].busy && submit(i, Transfer::kWrite, written_)) ++written_;
    }
    if (Status status = collect(ignored, ignored); !status.is_ok()) return status;
    if (Status status = check_time(); !status.is_ok()) return status;
    wait();
  }
  return drain();
}

Result<Rates> Fitter::saturate(std::uint32_t reads, std::uint32_t writes) {
  const Nanos start = now(), from = start + options_.discard_ns, until = from + options_.phase_ns;
  std::uint64_t read_bytes = 0, written_bytes = 0, read_from = 0, written_from = 0;
  Nanos counted_from = 0, counted_to = 0;
  while (now() < until) {
    for (std::uint32_t i = 0; i < reads; ++i) {
      // Only what nobody writes at the same time is read: the first half of the slots.
      const std::size_t half = writes > 0 ? slots_.size() / 2 : slots_.size();
      if (!lanes_[i].busy && submit(i, Transfer::kRead, next_read_ % half)) ++next_read_;
    }
    for (std::uint32_t i = 0; i < writes; ++i) {
      const std::size_t half = slots_.size() / 2, lane = options_.depth + i;
      if (lanes_[lane].busy) continue;
      const std::size_t slot = half + next_write_ % (slots_.size() - half);
      if (Status status = renew(slot); !status.is_ok()) return failure(status);
      if (submit(static_cast<std::uint32_t>(lane), Transfer::kWrite, slot)) ++next_write_;
    }
    if (Status status = collect(read_bytes, written_bytes); !status.is_ok()) return failure(status);
    if (Status status = check_time(); !status.is_ok()) return failure(status);
    const Nanos at = now();
    if (counted_from == 0 && at >= from) {
      counted_from = at;
      read_from = read_bytes;
      written_from = written_bytes;
    }
    counted_to = at;
    wait();
  }
  if (Status status = drain(); !status.is_ok()) return failure(status);
  const double lasted_s = static_cast<double>(counted_to - counted_from) * 1e-9;
  if (counted_from == 0 || lasted_s <= 0) {
    return failure(Code::kTimedOut, "a phase was too short; make it longer");
  }
  return Rates{static_cast<double>(read_bytes - read_from) / lasted_s,
               static_cast<double>(written_bytes - written_from) / lasted_s};
}

/// The median time of an access that has the tier for itself, after a gap that no throttle's burst
/// outlives by much: so a burst hides the transfer, and what is left is the latency.
Result<double> Fitter::lone_s(Transfer transfer) {
  std::vector<double> times;
  for (std::uint32_t i = 0; i < options_.lone_accesses; ++i) {
    if (transfer == Transfer::kWrite) {
      if (Status status = renew(i % slots_.size()); !status.is_ok()) return failure(status);
    }
    if (!submit(0, transfer, i % slots_.size())) {
      return failure(Code::kOverloaded, "tier " + tier_.traits().name + " takes no operation");
    }
    if (Status status = drain(); !status.is_ok()) return failure(status);
    times.push_back(last_lone_s_);
    const timespec gap{0, 10 * kMillisecond};
    ::nanosleep(&gap, nullptr);
  }
  return median(std::move(times));
}

Result<DeviceModel> Fitter::run() {
  if (Status status = open(); !status.is_ok()) return failure(status);
  if (Status status = write_all(); !status.is_ok()) return failure(status);
  const auto reads = saturate(options_.depth, 0);
  if (!reads) return failure(reads.error());
  const auto writes = saturate(0, options_.depth);
  if (!writes) return failure(writes.error());
  const auto both = saturate(options_.depth, options_.depth);
  if (!both) return failure(both.error());
  const auto lone_read = lone_s(Transfer::kRead);
  if (!lone_read) return failure(lone_read.error());
  const auto lone_write = lone_s(Transfer::kWrite);
  if (!lone_write) return failure(lone_write.error());

  DeviceModel model;
  model.read_bytes_per_s = reads->read;
  model.write_bytes_per_s = writes->write;
  // Behind a throttle a lone access is paid for by the burst: its time is the device's own.
  const auto latency = [&](double lone, double rate) {
    const double transfer_s =
        options_.burst_ns > 0 ? 0 : options_.block_bytes / std::max(1.0, rate);
    return static_cast<Nanos>(std::max(0.0, lone - transfer_s) * 1e9);
  };
  model.read_latency_ns = latency(*lone_read, reads->read);
  model.write_latency_ns = latency(*lone_write, writes->write);
  model.burst_ns = options_.burst_ns;
  // x = 1 - d y and y = 1 - d x, of the shares that each direction keeps.
  const double x = both->read / std::max(1.0, reads->read);
  const double y = both->write / std::max(1.0, writes->write);
  // Of both being measured: below it is noise.
  if (x + y > 0 && x + y < 2 - kDisturbanceMin)
    model.disturbance = std::clamp((2 - x - y) / (x + y), 0.0, 1.0);
  return model;
}

}  // namespace

Result<DeviceModel> measure_tier_model(Tier& tier, const FitOptions& options) {
  return Fitter(tier, options).run();
}

double measure_copy_rate(std::uint32_t block_bytes) {
  // So many blocks that the caches hold none of them when its turn comes again.
  const std::size_t blocks = std::max<std::size_t>(2, kCopiedBytes / block_bytes);
  std::vector<std::byte> from(blocks * block_bytes), into(blocks * block_bytes, std::byte{1});
  PlaceJob job;
  job.size_bytes = block_bytes;
  for (std::size_t i = 0; i < blocks; ++i) {
    fill_payload(key_of(1), {from.data() + i * block_bytes, block_bytes});
  }
  job.checksum = checksum({from.data(), block_bytes});
  std::vector<double> times;
  for (std::size_t i = 0; i < blocks; ++i) {
    const Span to{into.data() + i * block_bytes, block_bytes};
    job.from = from.data() + i * block_bytes;
    job.into = {&to, 1};
    const Nanos begun = SteadyClock::instance().now();
    place(job);
    times.push_back(static_cast<double>(SteadyClock::instance().now() - begun) * 1e-9);
  }
  const double one = median(std::move(times));
  return one > 0 ? block_bytes / one : 0;
}

}  // namespace kvstream
