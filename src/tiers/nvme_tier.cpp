#include "tiers/nvme_tier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tiers/plain_pfs_tier.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kInFlightMax = 64;
constexpr std::uint8_t kRetriesMax = 8;
constexpr int kDrainRoundsMax = 50;
constexpr std::uint32_t kDrainWaitMs = 100;

}  // namespace

Result<TierTraits> nvme_traits(const TierSpec& spec, Caching caching) {
  auto device = device_id_of(spec.path);
  if (!device) return failure(device.error());
  TierTraits traits;
  traits.kind = "nvme";
  traits.name = spec.name;
  traits.device_id = std::move(*device);
  traits.alignment_bytes = alignment_of(caching);
  traits.in_flight_max = kInFlightMax;
  traits.direct_landing = true;
  traits.persistent = true;
  traits.readable_without_owner = true;
  return traits;
}

SlotStoreOptions nvme_store_options(const TierSpec& spec, const TierContext& context,
                                    Caching caching, const NvmeOptions& options) {
  SlotStoreOptions store = slot_store_options(spec, context);
  store.layout = StoreLayout::kNodeLocal;
  store.writer_index = context.local_rank;
  store.writers = context.local_ranks;
  store.format = std::make_shared<PlainFormat>();
  store.follow_interval_ns = options.follow_interval_ns;
  store.opener = options.opener;
  if (!store.opener) store.opener = std::make_shared<PosixOpener>(caching);
  return store;
}

TierFactory nvme_tier_factory(NvmeOptions options) {
  return [options](const TierSpec& spec, const TierContext& context) -> Result<AnyTier> {
    if (options.engine == IoEngine::kAuto) {
      auto tier = NvmeTier::open(spec, context, options);
      if (tier) return AnyTier(std::move(*tier));
      if (tier.error().code() != Code::kUnavailable) return failure(tier.error());
      logger("tiers").warn("tier {}: {}; threads read and write instead", spec.name,
                           tier.error().message());
    }
    auto twin = PlainPfsTier::open_nvme(spec, context, options);
    if (!twin) return failure(twin.error());
    return AnyTier(std::move(*twin));
  };
}

Result<std::unique_ptr<NvmeTier>> NvmeTier::open(const TierSpec& spec, const TierContext& context,
                                                 const NvmeOptions& options) {
  auto ring = Uring::open(2 * kInFlightMax);
  if (!ring) return failure(ring.error());
  const auto without_retry = [](Status status) {
    // kUnavailable means one thing only to the caller: no io_uring.
    const bool other = status.code() == Code::kUnavailable;
    return failure(other ? Status(Code::kIoError, status.message()) : std::move(status));
  };
  if (auto status = make_directories(spec.path); !status.is_ok()) return without_retry(status);
  std::unique_ptr<NvmeTier> tier(new NvmeTier());
  tier->ring_ = std::move(*ring);
  tier->clock_ = context.clock;
  tier->caching_ = options.allow_direct ? probe_caching(spec.path) : Caching::kGoverned;
  auto traits = nvme_traits(spec, tier->caching_);
  if (!traits) return without_retry(traits.error());
  tier->traits_ = std::move(*traits);
  auto store = SlotStore::open(nvme_store_options(spec, context, tier->caching_, options));
  if (!store) return without_retry(store.error());
  tier->store_ = std::move(*store);
  tier->ops_.resize(kInFlightMax);
  for (std::uint32_t i = kInFlightMax; i > 0; --i) tier->idle_.push_back(i - 1);
  return tier;
}

NvmeTier::~NvmeTier() {
  if (!ring_) return;
  std::array<Completion, kInFlightMax> ignored;
  for (int i = 0; i < kDrainRoundsMax && idle_.size() < ops_.size(); ++i) {
    ring_->wait(kDrainWaitMs);
    (void)poll(ignored);
  }
  if (idle_.size() == ops_.size()) return;
  logger("tiers").error("tier {}: {} operations are stuck in the kernel; left behind", traits_.name,
                        ops_.size() - idle_.size());
  ring_->abandon();
  // The kernel may still read these.
  static_cast<void>(new std::vector<Op>(std::move(ops_)));
}

std::size_t NvmeTier::submit_reads(std::span<const ReadOp> ops) {
  std::size_t taken = 0;
  for (; taken < ops.size() && !idle_.empty(); ++taken) {
    const ReadOp& read = ops[taken];
    const std::uint32_t index = idle_.back();
    Op& op = ops_[index];
    Status status = spans_to_iovecs(read, traits_.alignment_bytes, op.spans);
    if (status.is_ok()) {
      auto address = store_->resolve(read.at);
      if (address) {
        op.address = std::move(*address);
      } else {
        status = address.error();
      }
    }
    if (!status.is_ok()) {
      refuse(read.id, status);
      continue;
    }
    idle_.pop_back();
    op.is_write = false;
    op.write.id = read.id;
    op.write.size_bytes = read.size_bytes;
    start(index);
  }
  send();
  return taken;
}

std::size_t NvmeTier::submit_writes(std::span<const WriteOp> ops) {
  std::size_t taken = 0;
  for (; taken < ops.size() && !idle_.empty(); ++taken) {
    const WriteOp& write = ops[taken];
    const std::uint32_t index = idle_.back();
    Op& op = ops_[index];
    auto address = store_->prepare_write(write.at);
    if (address && (write.from == nullptr || write.size_bytes == 0 ||
                    write.size_bytes > store_->slot_bytes())) {
      address = failure(Code::kInvalidArgument, "a block larger than its slot, or none");
    }
    if (!address) {
      refuse(write.id, address.error());
      continue;
    }
    idle_.pop_back();
    op.address = std::move(*address);
    op.is_write = true;
    op.write = write;
    start(index);
  }
  send();
  return taken;
}

void NvmeTier::start(std::uint32_t index) {
  Op& op = ops_[index];
  op.phase = Phase::kBytes;
  op.retries = 0;
  op.io_bytes = round_up(op.write.size_bytes, traits_.alignment_bytes);
  prepare(index);
}

void NvmeTier::prepare(std::uint32_t index) {
  Op& op = ops_[index];
  const int fd = static_cast<const PosixHandle&>(*op.address.handle).fd();
  const std::uint64_t offset = op.address.offset_bytes;
  bool prepared = false;
  switch (op.phase) {
    case Phase::kBytes:
      prepared = op.is_write ? ring_->prepare_write(fd, op.write.from, op.io_bytes, offset, index)
                             : ring_->prepare_readv(fd, op.spans.data(),
                                                    static_cast<std::uint32_t>(op.spans.size()),
                                                    offset, index);
      break;
    case Phase::kSync:
      prepared = ring_->prepare_sync(fd, op.io_bytes, offset, index);
      break;
    case Phase::kDrop:
      prepared = ring_->prepare_drop(fd, round_up(op.io_bytes, kDirectAlignment), offset, index);
      break;
  }
  if (prepared) {
    prepared_.push_back(index);
  } else {
    finish(index, Status(Code::kIoError, "the ring of tier " + traits_.name + " takes no more"));
  }
}

void NvmeTier::handle(std::uint32_t index, std::int32_t result) {
  Op& op = ops_[index];
  if ((result == -EINTR || result == -EAGAIN) && op.retries < kRetriesMax) {
    ++op.retries;
    prepare(index);
    return;
  }
  const bool buffered = caching_ == Caching::kGoverned;
  switch (op.phase) {
    case Phase::kBytes:
      if (result != static_cast<std::int32_t>(op.io_bytes)) {
        const std::string reason = result < 0 ? std::generic_category().message(-result)
                                              : fmt::format("short by {} B", op.io_bytes - result);
        finish(index, {result == -ENOSPC ? Code::kNoSpace : Code::kIoError,
                       fmt::format("failed to {} {} B at {}:{} ({}); block {}",
                                   op.is_write ? "write" : "read", op.io_bytes, *op.address.path,
                                   op.address.offset_bytes, reason,
                                   op.is_write ? "not cached" : "treated as a miss")});
        return;
      }
      if (!buffered) break;
      op.phase = op.is_write ? Phase::kSync : Phase::kDrop;
      prepare(index);
      return;
    case Phase::kSync:
      if (result == -EIO || result == -ENOSPC) {
        finish(index, {Code::kIoError,
                       fmt::format("failed to write {} B at {}:{} back to its device ({}); block "
                                   "not cached",
                                   op.io_bytes, *op.address.path, op.address.offset_bytes,
                                   std::generic_category().message(-result))});
        return;
      }
      op.phase = Phase::kDrop;
      prepare(index);
      return;
    case Phase::kDrop:
      break;
  }
  finish(index, op.is_write ? store_->commit(op.write) : Status::ok());
}

void NvmeTier::finish(std::uint32_t index, const Status& status) {
  Op& op = ops_[index];
  if (!status.is_ok()) log_failure(status);
  done_.push_back({op.write.id, status.code(), op.write.size_bytes});
  op.address = {};
  idle_.push_back(index);
  store_->mark_busy();
}

void NvmeTier::refuse(std::uint64_t id, const Status& status) {
  log_failure(status);
  done_.push_back({id, status.code(), 0});
  ring_->event().ring();
}

void NvmeTier::log_failure(const Status& status) {
  if (status.code() == Code::kNotFound) {
    // A hint that was out of date: it happens.
    logger("tiers").debug("tier {}: {}", traits_.name, status.message());
    return;
  }
  store_->count_error();
  std::uint64_t suppressed = 0;
  if (!warn_limit_.admit(clock_->now(), suppressed)) return;
  logger("tiers").warn("tier {}: {} ({} more like it)", traits_.name, status.message(), suppressed);
}

void NvmeTier::send() {
  if (prepared_.empty()) return;
  store_->mark_busy();
  const auto taken = ring_->submit();
  if (taken) {
    prepared_.erase(prepared_.begin(), prepared_.begin() + *taken);
    return;
  }
  // What the kernel has not taken it never will: those operations end here.
  const std::deque<std::uint32_t> lost = std::exchange(prepared_, {});
  for (const std::uint32_t index : lost) finish(index, taken.error());
  ring_->event().ring();
}

std::size_t NvmeTier::poll(std::span<Completion> out) {
  ring_->event().clear();
  while (const auto reaped = ring_->reap()) {
    handle(static_cast<std::uint32_t>(reaped->tag), reaped->result);
  }
  send();
  const std::size_t count = std::min(out.size(), done_.size());
  std::copy_n(done_.begin(), count, out.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  if (!done_.empty()) ring_->event().ring();
  return count;
}

Nanos NvmeTier::next_event() const {
  // The kernel was too busy to take all: ask again soon.
  return prepared_.empty() ? kNever : clock_->now() + kMillisecond;
}

TierReport NvmeTier::report() const {
  TierReport report = store_->report();
  const std::string how = caching_ == Caching::kDirect ? "io_uring+O_DIRECT" : "io_uring+buffered";
  report.mode = report.mode.empty() ? how : how + ", " + report.mode;
  return report;
}

}  // namespace kvstream
