#include "launch/job.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "config/tier_spec.hpp"
#include "core/units.hpp"
#include "launch/rate_probe.hpp"
#include "launch/serving_settings.hpp"
#include "memory/buffer_pool.hpp"
#include "replay/agreement.hpp"

namespace kvstream {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kGroup_ns = 60 * kSecond;
constexpr Nanos kClose_ns = 60 * kSecond;
constexpr std::uint64_t kTemporaryHostCap = 128ULL << 20U;
constexpr std::uint64_t kTemporaryDiskCap = 1ULL << 30U;

std::uint64_t bytes_below(const std::string& path) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(path, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) {
      const auto size = at->file_size(ignored);
      if (!ignored) sum += size;
    }
  }
  return sum;
}

Status make_directory(const TierSpec& spec) {
  std::error_code error;
  fs::create_directories(spec.path, error);
  if (error || !fs::is_directory(spec.path)) {
    return {Code::kIoError,
            fmt::format("tier {}: failed to make the directory {} ({}); name another", spec.name,
                        spec.path, error.message())};
  }
  if (::access(spec.path.c_str(), W_OK | X_OK) != 0) {
    return {Code::kIoError,
            fmt::format("tier {}: the directory {} can't be written ({}); name another", spec.name,
                        spec.path, std::strerror(errno))};
  }
  return Status::ok();
}

/// Space that the tiers of one file system may still take, against what their caps allow them.
Status check_disks(const std::vector<TierSpec>& tiers) {
  struct Disk {
    std::uint64_t free_bytes = 0, there_bytes = 0, caps_bytes = 0;
    std::string names;
  };
  std::map<std::uint64_t, Disk> disks;
  for (const auto& spec : tiers) {
    if (spec.path.empty()) continue;
    struct statvfs info {};
    if (::statvfs(spec.path.c_str(), &info) != 0) continue;
    Disk& disk = disks[info.f_fsid];
    disk.free_bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
    disk.there_bytes += bytes_below(spec.path);
    disk.caps_bytes += spec.cap_bytes;
    disk.names += (disk.names.empty() ? "" : ", ") + spec.name;
  }
  for (const auto& [id, disk] : disks) {
    if (disk.caps_bytes <= disk.free_bytes + disk.there_bytes) continue;
    return {Code::kNoSpace,
            fmt::format("the caps of tier(s) {} add up to {}, but their disk has {} free and {} of "
                        "theirs: lower cap=, or name another directory",
                        disk.names, format_size(disk.caps_bytes), format_size(disk.free_bytes),
                        format_size(disk.there_bytes))};
  }
  return Status::ok();
}

}  // namespace

Visibility visibility_of(const std::string& kind) {
  if (kind == "host") return Visibility::kRank;
  return kind == "nvme" ? Visibility::kNode : Visibility::kJob;
}

Result<std::unique_ptr<Job>> Job::open(Bootstrap& bootstrap, JobOptions options) {
  std::unique_ptr<Job> job(new Job(bootstrap, std::move(options)));
  Group& group = bootstrap.group();
  Status status = job->make_temporary_tiers();
  if (status.is_ok()) status = job->expand_and_check();
  if (status = agree(group, status); !status.is_ok()) return failure(status);
  if (status = agree(group, job->check_all_memory()); !status.is_ok()) return failure(status);
  if (status = agree(group, job->open_engines()); !status.is_ok()) return failure(status);
  return job;
}

Job::~Job() { close(); }

/// Rank 0 makes the folder; all learn its name, also of a failure.
Status Job::make_temporary_tiers() {
  if (!options_.config.tiers.empty()) return Status::ok();
  Group& group = bootstrap_.group();
  std::string made;
  if (group.rank() == 0) {
    const char* base = std::getenv("TMPDIR");
    std::string pattern =
        std::string(base != nullptr && *base ? base : "/tmp") + "/kvstream-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) made = pattern;
  }
  auto path = group.broadcast(made, kGroup_ns);
  if (!path) return path.error();
  if (path->empty()) {
    return {Code::kIoError, "failed to make a temporary folder; set TMPDIR, or give --tier"};
  }
  temporary_ = std::make_unique<TemporaryFolder>(
      *path, group.local_rank() == 0 ? FolderRole::kRemover : FolderRole::kGuest);
  TierSpec host{"host", "host", "", kTemporaryHostCap, {}, 0};
  TierSpec nvme{"nvme", "nvme", *path + "/nvme", kTemporaryDiskCap, {}, 0};
  TierSpec pfs{"pfs", "pfs", *path + "/pfs", kTemporaryDiskCap, {}, 0};
  options_.config.tiers = {host, nvme, pfs};
  return Status::ok();
}

Status Job::expand_and_check() {
  Group& group = bootstrap_.group();
  auto& tiers = options_.config.tiers;
  Status status = expand_paths(tiers, {group.rank(), group.node(), group.job()});
  if (!status.is_ok()) return status;
  for (const auto& spec : tiers) {
    if (spec.cap_bytes == 0) {
      return {Code::kInvalidArgument,
              fmt::format("tier {} has no cap; write e.g. cap=2GiB behind it", spec.name)};
    }
    if (spec.path.empty()) continue;
    if (status = make_directory(spec); !status.is_ok()) return status;
  }
  return check_disks(tiers);
}

Status Job::check_all_memory() const {
  std::uint64_t bytes = options_.config.settings.pool_bytes + options_.other_bytes;
  for (const auto& spec : options_.config.tiers) {
    if (visibility_of(spec.kind) == Visibility::kRank) bytes += spec.cap_bytes;
  }
  const std::uint32_t ranks = std::max(1U, bootstrap_.group().local_size());
  return check_memory(bytes * ranks,
                      "pools, host tiers and steps of this node's ranks (lower --pool, cap= of the "
                      "host tier, or --batch)");
}

/// To tiers a shard is a rank: it has a writer and a share of each cap of its own.
TierContext Job::context(std::uint32_t shard) const {
  const Group& group = bootstrap_.group();
  const std::uint32_t shards = options_.shards;
  TierContext context;
  context.rank = group.rank() * shards + shard;
  context.ranks = group.size() * shards;
  context.local_rank = group.local_rank() * shards + shard;
  context.local_ranks = group.local_size() * shards;
  context.node = group.node();
  context.job = group.job();
  context.namespace_fingerprint = options_.namespace_fingerprint;
  context.block_bytes_max = options_.config.settings.block_bytes_max;
  context.clock = options_.clock;
  return context;
}

Status Job::open_engines() {
  const EngineConfig& config = options_.config;
  auto made = make_tier_parts(config.tiers, context(0), bootstrap_.kinds());
  if (!made) return made.error();
  throttles_ = std::move(made->throttles);
  for (std::size_t i = 0; i < config.tiers.size(); ++i) {
    const TierSpec& spec = config.tiers[i];
    const Visibility visibility = visibility_of(spec.kind);
    ReplayTier tier{spec, visibility, visibility != Visibility::kRank, 0};
    if (throttles_[i].control)
      tier.burst_bytes = throttles_[i].control->burst_bytes(Direction::kRead);
    tiers_.push_back(std::move(tier));
  }
  settings_ = shard_settings(config.settings, options_.shards);
  // The cap of memory is a rank's; others' are divided by who writes there. Limiters are shared.
  for (TierPart& part : made->parts) {
    if (visibility_of(part.spec.kind) == Visibility::kRank) part.spec.cap_bytes /= options_.shards;
  }
  for (std::uint32_t shard = 0; shard < options_.shards; ++shard) {
    auto engine = Engine::open({settings_, config.mode, context(shard)}, made->parts);
    if (!engine) return engine.error();
    engines_.push_back(std::move(*engine));
  }
  return Status::ok();
}

std::vector<Engine*> Job::engines() const {
  std::vector<Engine*> engines;
  for (const auto& engine : engines_) engines.push_back(engine.get());
  return engines;
}

void Job::full_speed(bool lifted) {
  for (const auto& throttle : throttles_) {
    if (throttle.control) throttle.control->bypass(lifted ? Bypass::kOn : Bypass::kOff);
  }
}

void Job::set_speed(const std::string& tier, double factor) {
  for (const auto& throttle : throttles_) {
    if (throttle.tier != tier || !throttle.control) continue;
    const auto rates = throttle.control->rates_at_open();
    const auto scaled = [&](std::uint64_t rate) {
      return rate == 0 ? 0
                       : std::max<std::uint64_t>(
                             1, static_cast<std::uint64_t>(factor * static_cast<double>(rate)));
    };
    throttle.control->set_rates({scaled(rates.read_bytes_per_s), scaled(rates.write_bytes_per_s)});
  }
}

Result<RateProbe> Job::open_probe(std::size_t tier) {
  const TierSpec& spec = options_.config.tiers.at(tier);
  const TierKinds kinds = bootstrap_.kinds();
  return open_rate_probe(spec, context(0), kinds.find(spec.kind)->second, throttles_[tier].control);
}

bool Job::close() {
  bool abandoned = false;
  if (!engines_.empty()) full_speed(false);
  for (const auto& engine : engines_) {
    abandoned |= engine->close(options_.clock->now() + kClose_ns).abandoned;
  }
  engines_.clear();
  remove_temporary();
  return abandoned;
}

/// When no rank uses it any more, or has not said so in time.
void Job::remove_temporary() {
  if (!temporary_) return;
  [[maybe_unused]] const auto late = bootstrap_.group().barrier(kGroup_ns);
  temporary_.reset();
}

}  // namespace kvstream
