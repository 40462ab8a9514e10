// `kvstream bench fit`: measures tiers as they are, for virtual time.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "core/keys.hpp"
#include "core/logging.hpp"
#include "core/units.hpp"
#include "engine/threaded_tier.hpp"
#include "launch/bench_command.hpp"
#include "launch/exit_codes.hpp"
#include "launch/run_files.hpp"
#include "launch/signals.hpp"
#include "launch/temporary_folder.hpp"
#include "replay/fit.hpp"

namespace kvstream {
namespace {

constexpr char kFitExamples[] = R"(Example:
  kvstream bench fit node.json --block 1MiB --tier nvme=nvme:/local/kv,cap=4GiB \
      --tier pfs=pfs:/scratch/kv,cap=4GiB
  kvstream replay trace.jsonl --virtual-time --fit node.json --tier ... (the same names)
Each tier is written and read for a few seconds in a folder of its own below the path, which is
removed.)";
constexpr std::uint64_t kBytesMax = 1ULL << 30U;
constexpr Nanos kCloseMax = 10 * kSecond;

/// The tier alone, with its wrappers, as an engine would open it.
Result<DeviceModel> fit_one(TierPart& part, const TierContext& context, FitOptions options) {
  auto made = part.make(part.spec, context);
  if (!made) return failure(made.error());
  auto [tier, adapter] = adapt(std::move(*made), SteadyClock::instance());
  const std::uint32_t io_threads = tier->traits().io_threads;
  if (part.wrap) {
    auto wrapped = part.wrap(std::move(tier));
    if (!wrapped) return failure(wrapped.error());
    tier = std::move(*wrapped);
  }
  options.bytes = std::min<std::uint64_t>(tier->report().capacity_bytes / 2, kBytesMax);
  auto model = measure_tier_model(*tier, options);
  // A throttle makes operations wait after the threads have done them.
  if (model) model->concurrency = part.spec.throttle.any() ? 0 : io_threads;
  if (adapter != nullptr && !adapter->close(kCloseMax)) {
    return failure(Code::kTimedOut, "a thread of tier " + part.spec.name + " is stuck");
  }
  return model;
}

}  // namespace

void BenchCommand::add_fit(CLI::App& app) {
  add_engine_settings(fit_table_, config_);
  fit_table_.add({.name = "block",
                  .kind = ValueKind::kSize,
                  .help = "bytes of a block",
                  .unit = "B",
                  .target = &block_bytes_,
                  .min = 4096,
                  .max = 1U << 28U});
  app.footer(kFitExamples);
  app.add_option("FILE", fit_path_, "where the figures go; - = to stdout")->required();
  add_options(app, fit_table_, fit_line_);
}

Result<Fit> BenchCommand::measure_fit(const TierKinds& kinds) {
  TierContext context;
  context.clock = &SteadyClock::instance();
  context.block_bytes_max = static_cast<std::uint32_t>((block_bytes_ + 4095U) & ~4095ULL);
  Namespace ns;
  ns.model = "bench fit";
  context.namespace_fingerprint = namespace_fingerprint(namespace_key(ns));
  Fit fit;
  fit.copies.threads = config_.settings.copy_threads;
  fit.copies.copy_bytes_per_s = measure_copy_rate(context.block_bytes_max);
  for (TierSpec spec : config_.tiers) {
    if (stop_flag().load()) return failure(Code::kClosed, "interrupted");
    std::error_code error;
    const bool folder = !spec.path.empty();
    if (folder) spec.path += fmt::format("/.kvstream-fit-{}", ::getpid());
    if (folder) std::filesystem::create_directories(spec.path, error);
    if (error) {
      return failure(Code::kIoError,
                     fmt::format("tier {}: failed to make the directory {} ({}); name another",
                                 spec.name, spec.path, error.message()));
    }
    std::optional<TemporaryFolder> removed;
    if (folder) removed.emplace(spec.path, FolderRole::kRemover);
    fmt::print(stderr, "measuring tier {} ...\n", spec.name);
    auto parts = make_tier_parts(std::span(&spec, 1), context, kinds);
    if (!parts) return failure(parts.error());
    FitOptions options;
    options.block_bytes = context.block_bytes_max;
    if (spec.throttle.any()) options.burst_ns = ThrottleControl::kBurstNs;
    const auto model = fit_one(parts->parts.front(), context, options);
    if (!model) return failure(model.error());
    fit.tiers[spec.name] = *model;
  }
  return fit;
}

int BenchCommand::run_fit() {
  Status status = apply(fit_line_, fit_table_, config_);
  if (status.is_ok() && config_.tiers.empty()) {
    status = {Code::kInvalidArgument, "bench fit needs tiers: --tier NAME=KIND:PATH,cap=SIZE"};
  }
  if (status.is_ok()) status = setup_logging(0, config_.log);
  if (status.is_ok()) status = check_writable(fit_path_);
  if (!status.is_ok()) {
    print_error(status, 0);
    return kExitBadInput;
  }
  auto bootstrap = open_bootstrap("auto", config_.node);
  if (!bootstrap) {
    print_error(bootstrap.error(), 0);
    return kExitBadInput;
  }
  catch_signals();
  int code = kExitGood;
  if ((*bootstrap)->group().size() > 1) {
    print_error({Code::kInvalidArgument, "bench fit measures with one process: start one"},
                (*bootstrap)->group().rank());
    code = kExitBadInput;
  } else {
    const auto fit = measure_fit((*bootstrap)->kinds());
    if (!fit) print_error(fit.error(), 0);
    if (!fit) code = stop_flag().load() ? kExitInterrupted : kExitWrong;
    if (fit) code = print_fit(*fit);
  }
  if ((*bootstrap)->leave()) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}

int BenchCommand::print_fit(const Fit& fit) const {
  nlohmann::json json = to_json(fit);
  json["block_bytes"] = block_bytes_;
  if (const Status written = write_json(fit_path_, json); !written.is_ok()) {
    print_error(written, 0);
    return kExitWrong;
  }
  if (fit_path_ == "-") return kExitGood;
  for (const auto& [name, model] : fit.tiers) {
    fmt::print("{:<8} read {}, write {}, latency {} and {}, writes disturb reads by {:.0f} %\n",
               name, format_rate(model.read_bytes_per_s), format_rate(model.write_bytes_per_s),
               format_duration(model.read_latency_ns), format_duration(model.write_latency_ns),
               100 * model.disturbance);
  }
  fmt::print("copies   {} a thread\n", format_rate(fit.copies.copy_bytes_per_s));
  return kExitGood;
}

}  // namespace kvstream
