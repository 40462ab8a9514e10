#include "mpi_tiers/mpi_pfs_tier.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>

#include "mpi_tiers/hdf5_segment.hpp"
#include "mpi_tiers/mpi_file.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kIoThreads = 8;

}  // namespace

SlotStoreOptions MpiPfsTier::store_options(const TierSpec& spec, const TierContext& context) {
  SlotStoreOptions options = slot_store_options(spec, context);
  options.layout = StoreLayout::kShared;
  options.writer_index = context.rank;
  options.writers = context.ranks;
  return options;
}

Result<std::unique_ptr<MpiPfsTier>> MpiPfsTier::open(std::shared_ptr<const MpiSession> session,
                                                     const TierSpec& spec,
                                                     const TierContext& context) {
  return open_with(std::move(session), spec.name, store_options(spec, context));
}

Result<std::unique_ptr<MpiPfsTier>> MpiPfsTier::open_with(std::shared_ptr<const MpiSession> session,
                                                          const std::string& name,
                                                          SlotStoreOptions options) {
  if (session->thread_level() < MPI_THREAD_SERIALIZED) {
    return failure(Code::kUnavailable,
                   fmt::format("failed to open tier {} (its threads may not call an MPI of thread "
                               "level {}): use an MPI built with threads, or `kvstream` built "
                               "without MPI",
                               name, session->thread_level_name()));
  }
  if (Status known = check_io_component(); !known.is_ok()) return failure(known);
  if (Status made = make_directories(options.root); !made.is_ok()) return failure(made);
  auto device = device_id_of(options.root);
  if (!device) return failure(device.error());
  TierTraits traits;
  traits.kind = "pfs";
  traits.name = name;
  traits.device_id = *device;
  traits.io_threads = session->concurrent_calls() ? kIoThreads : 1;
  traits.in_flight_max = traits.io_threads;
  traits.direct_landing = true;
  traits.persistent = true;
  traits.readable_without_owner = true;

  options.format = std::make_shared<Hdf5SegmentFormat>(session);
  options.opener = std::make_shared<MpiFileOpener>(session);
  std::unique_ptr<MpiPfsTier> tier(new MpiPfsTier(std::move(session), std::move(traits)));
  tier->clock_ = options.clock;
  auto store = SlotStore::open(std::move(options));
  if (!store) return failure(store.error());
  tier->store_ = std::move(*store);
  return tier;
}

Result<std::uint32_t> MpiPfsTier::read(const ReadOp& op) {
  store_->mark_busy();
  auto address = store_->resolve(op.at);
  // A slot of another writer that is gone meanwhile is no error of this tier.
  if (!address) return failure(address.error());
  const auto& file = static_cast<const MpiFile&>(*address->handle);
  const Status status = read_spans(file, op, address->offset_bytes);
  file.forget(address->offset_bytes, op.size_bytes);
  if (!status.is_ok()) return failure(failed(status, "block treated as a miss"));
  return op.size_bytes;
}

Status MpiPfsTier::read_spans(const MpiFile& file, const ReadOp& op,
                              std::uint64_t offset_bytes) const {
  std::uint64_t done = 0;
  for (const Span& span : op.into) {
    const std::uint64_t want = std::min<std::uint64_t>(span.size_bytes, op.size_bytes - done);
    if (want == 0) break;
    if (Status status = file.read(offset_bytes + done, {span.data, want}); !status.is_ok()) {
      return status;
    }
    done += want;
  }
  if (done == op.size_bytes) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("failed to read {} B (destinations hold {} B)", op.size_bytes, done)};
}

Status MpiPfsTier::write(const WriteOp& op) {
  store_->mark_busy();
  auto address = store_->prepare_write(op.at);
  if (!address) return failed(address.error(), "block not saved");
  const auto& file = static_cast<const MpiFile&>(*address->handle);
  if (Status status = file.write(address->offset_bytes, {op.from, op.size_bytes});
      !status.is_ok()) {
    return failed(status, "block not saved");
  }
  if (Status status = store_->commit(op); !status.is_ok()) {
    return failed(status, "block not saved");
  }
  return Status::ok();
}

Status MpiPfsTier::failed(Status status, const char* consequence) {
  store_->count_error();
  std::uint64_t suppressed = 0;
  if (error_lines_.admit(clock_->now(), suppressed)) {
    logger("pfs").warn(
        "{}: {}; {}{}", traits_.name, status.message(), consequence,
        suppressed > 0 ? fmt::format(" (and {} such lines before)", suppressed) : std::string());
  }
  return status;
}

TierReport MpiPfsTier::report() const {
  TierReport report = store_->report();
  const MpiIoFacts facts = mpi_io_facts();
  std::string mode = fmt::format("hdf5+mpi-io({})", facts.component);
  if (!facts.descriptors_found) mode += ", read-ahead not governed";
  if (!session_->concurrent_calls()) {
    mode += fmt::format(", one thread (MPI granted {})", session_->thread_level_name());
  }
  if (!report.mode.empty()) mode += ", " + report.mode;
  report.mode = std::move(mode);
  return report;
}

TierFactory mpi_pfs_tier_factory() {
  return [](const TierSpec& spec, const TierContext& context) -> Result<AnyTier> {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      return failure(Code::kUnavailable,
                     fmt::format("failed to open tier {} (MPI was not entered): call "
                                 "MpiSession::open() first",
                                 spec.name));
    }
    auto session = MpiSession::open();
    if (!session) return failure(session.error());
    auto tier = MpiPfsTier::open(std::move(*session), spec, context);
    if (!tier) return failure(tier.error());
    return AnyTier(std::unique_ptr<BlockingTier>(std::move(*tier)));
  };
}

}  // namespace kvstream
