#include "tiers/plain_pfs_tier.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace kvstream {
namespace {

constexpr std::uint32_t kPfsThreads = 8;
constexpr std::uint32_t kNvmeThreads = 16;
constexpr std::uint32_t kInFlightMax = 64;
constexpr int kRetriesMax = 8;

int fd_of(const SlotAddress& address) {
  return static_cast<const PosixHandle&>(*address.handle).fd();
}

/// The call's answer once it is something else than EINTR or EAGAIN, or after a few of those.
template <class Call>
ssize_t call_again(const Call& call) {
  ssize_t got = call();
  for (int i = 0; got < 0 && (errno == EINTR || errno == EAGAIN) && i < kRetriesMax; ++i) {
    got = call();
  }
  return got;
}

std::string reason_of(ssize_t got, std::uint32_t wanted) {
  return got < 0 ? std::generic_category().message(errno)
                 : fmt::format("short by {} B", wanted - static_cast<std::uint32_t>(got));
}

}  // namespace

TierFactory plain_pfs_tier_factory(PlainPfsOptions options) {
  return [options](const TierSpec& spec, const TierContext& context) -> Result<AnyTier> {
    auto tier = PlainPfsTier::open(spec, context, options);
    if (!tier) return failure(tier.error());
    return AnyTier(std::move(*tier));
  };
}

Result<std::unique_ptr<PlainPfsTier>> PlainPfsTier::open(const TierSpec& spec,
                                                         const TierContext& context,
                                                         const PlainPfsOptions& options) {
  if (auto status = make_directories(spec.path); !status.is_ok()) return failure(status);
  std::unique_ptr<PlainPfsTier> tier(new PlainPfsTier());
  tier->clock_ = context.clock;
  tier->caching_ = options.allow_direct ? probe_caching(spec.path) : Caching::kGoverned;
  tier->on_network_ = on_network_file_system(spec.path);
  auto device = device_id_of(spec.path);
  if (!device) return failure(device.error());
  tier->traits_.kind = "pfs";
  tier->traits_.name = spec.name;
  tier->traits_.device_id = std::move(*device);
  tier->traits_.alignment_bytes = alignment_of(tier->caching_);
  tier->traits_.in_flight_max = kInFlightMax;
  tier->traits_.io_threads = kPfsThreads;
  tier->traits_.direct_landing = true;
  tier->traits_.persistent = true;
  tier->traits_.readable_without_owner = true;
  SlotStoreOptions store = slot_store_options(spec, context);
  store.layout = StoreLayout::kShared;
  store.writer_index = context.rank;
  store.writers = context.ranks;
  store.format = std::make_shared<PlainFormat>();
  store.opener = options.opener;
  if (!store.opener) store.opener = std::make_shared<PosixOpener>(tier->caching_);
  store.follow_interval_ns = options.follow_interval_ns;
  store.dead_after_ns = options.dead_after_ns;
  if (auto status = tier->open_store(std::move(store)); !status.is_ok()) return failure(status);
  return tier;
}

Result<std::unique_ptr<PlainPfsTier>> PlainPfsTier::open_nvme(const TierSpec& spec,
                                                              const TierContext& context,
                                                              const NvmeOptions& options) {
  if (auto status = make_directories(spec.path); !status.is_ok()) return failure(status);
  std::unique_ptr<PlainPfsTier> tier(new PlainPfsTier());
  tier->clock_ = context.clock;
  tier->caching_ = options.allow_direct ? probe_caching(spec.path) : Caching::kGoverned;
  auto traits = nvme_traits(spec, tier->caching_);
  if (!traits) return failure(traits.error());
  tier->traits_ = std::move(*traits);
  tier->traits_.io_threads = kNvmeThreads;
  auto status = tier->open_store(nvme_store_options(spec, context, tier->caching_, options));
  if (!status.is_ok()) return failure(status);
  return tier;
}

Status PlainPfsTier::open_store(SlotStoreOptions options) {
  auto store = SlotStore::open(std::move(options));
  if (!store) return store.error();
  store_ = std::move(*store);
  return Status::ok();
}

Status PlainPfsTier::failed(Status status) const {
  if (status.code() == Code::kNotFound) {
    // A hint that was out of date: it happens.
    logger("tiers").debug("tier {}: {}", traits_.name, status.message());
    return status;
  }
  store_->count_error();
  std::uint64_t suppressed = 0;
  if (warn_limit_.admit(clock_->now(), suppressed)) {
    logger("tiers").warn("tier {}: {} ({} more like it)", traits_.name, status.message(),
                         suppressed);
  }
  return status;
}

Result<std::uint32_t> PlainPfsTier::read(const ReadOp& op) {
  std::vector<iovec> spans;
  if (auto status = spans_to_iovecs(op, traits_.alignment_bytes, spans); !status.is_ok()) {
    return failure(failed(status));
  }
  const auto address = store_->resolve(op.at);
  if (!address) return failure(failed(address.error()));
  store_->mark_busy();
  const std::uint32_t wanted = round_up(op.size_bytes, traits_.alignment_bytes);
  const ssize_t got = call_again([&] {
    return ::preadv(fd_of(*address), spans.data(), static_cast<int>(spans.size()),
                    static_cast<off_t>(address->offset_bytes));
  });
  const std::string reason = got == static_cast<ssize_t>(wanted) ? "" : reason_of(got, wanted);
  if (caching_ == Caching::kGoverned) {
    ::posix_fadvise(fd_of(*address), static_cast<off_t>(address->offset_bytes),
                    round_up(wanted, kDirectAlignment), POSIX_FADV_DONTNEED);
  }
  store_->mark_busy();
  if (reason.empty()) return op.size_bytes;
  return failure(failed(
      {Code::kIoError, fmt::format("failed to read {} B at {}:{} ({}); block treated as a miss",
                                   wanted, *address->path, address->offset_bytes, reason)}));
}

Status PlainPfsTier::write(const WriteOp& op) {
  if (op.from == nullptr || op.size_bytes == 0 || op.size_bytes > store_->slot_bytes()) {
    return failed({Code::kInvalidArgument, "a block larger than its slot, or none"});
  }
  const auto address = store_->prepare_write(op.at);
  if (!address) return failed(address.error());
  store_->mark_busy();
  Status status = write_bytes(op, *address);
  if (status.is_ok()) status = store_->commit(op);
  store_->mark_busy();
  return status.is_ok() ? status : failed(std::move(status));
}

Status PlainPfsTier::write_bytes(const WriteOp& op, const SlotAddress& address) const {
  const std::uint32_t wanted = round_up(op.size_bytes, traits_.alignment_bytes);
  const ssize_t put = call_again([&] {
    return ::pwrite(fd_of(address), op.from, wanted, static_cast<off_t>(address.offset_bytes));
  });
  if (put != static_cast<ssize_t>(wanted)) {
    const bool full = put < 0 && (errno == ENOSPC || errno == EDQUOT);
    return {full ? Code::kNoSpace : Code::kIoError,
            fmt::format("failed to write {} B at {}:{} ({}); block not cached", wanted,
                        *address.path, address.offset_bytes, reason_of(put, wanted))};
  }
  if (caching_ == Caching::kDirect) return Status::ok();
  return settle_written(fd_of(address), address.offset_bytes, wanted);
}

Status PlainPfsTier::settle_written(int fd, std::uint64_t offset_bytes,
                                    std::uint32_t size_bytes) const {
  const auto offset = static_cast<off_t>(offset_bytes);
  const ssize_t settled = call_again([&]() -> ssize_t {
    // Over a network only fdatasync moves the bytes to the server.
    if (on_network_) return ::fdatasync(fd);
    return ::sync_file_range(
        fd, offset, size_bytes,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  });
  if (settled != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
    return {Code::kIoError,
            fmt::format("failed to write {} B at offset {} back to their device ({}); block not "
                        "cached",
                        size_bytes, offset_bytes, std::generic_category().message(errno))};
  }
  ::posix_fadvise(fd, offset, round_up(size_bytes, kDirectAlignment), POSIX_FADV_DONTNEED);
  return Status::ok();
}

TierReport PlainPfsTier::report() const {
  TierReport report = store_->report();
  const std::string how = caching_ == Caching::kDirect ? "threads+O_DIRECT" : "threads+buffered";
  report.mode = report.mode.empty() ? how : how + ", " + report.mode;
  return report;
}

}  // namespace kvstream
