#include "launch/inspect_command.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/keys.hpp"
#include "core/logging.hpp"
#include "core/units.hpp"
#include "launch/job.hpp"
#include "launch/replay_command.hpp"
#include "launch/run_files.hpp"

namespace kvstream {
namespace {

nlohmann::json contents_json(const Engine& engine) {
  nlohmann::json tiers = nlohmann::json::array();
  const auto entries = engine.contents();
  const auto stats = engine.stats();
  for (std::size_t i = 0; i < stats.tiers.size(); ++i) {
    std::uint64_t own = 0, others = 0, bytes = 0;
    for (const auto& entry : entries) {
      own += entry.own >> i & 1U;
      others += entry.others >> i & 1U;
      if (((entry.own | entry.others) >> i & 1U) != 0) bytes += entry.size_bytes;
    }
    const auto& report = stats.tiers[i].report;
    tiers.push_back({{"name", stats.tiers[i].name},
                     {"kind", stats.tiers[i].kind},
                     {"mode", report.mode},
                     {"own_blocks", own},
                     {"others_blocks", others},
                     {"block_bytes", bytes},
                     {"capacity_bytes", report.capacity_bytes},
                     {"used_bytes", report.used_bytes}});
  }
  return tiers;
}

void print_text(const nlohmann::json& tiers) {
  fmt::print("{:<10} {:<6} {:>10} {:>10} {:>12} {:>12}  {}\n", "tier", "kind", "own", "others",
             "bytes", "capacity", "mode");
  for (const auto& tier : tiers) {
    fmt::print("{:<10} {:<6} {:>10} {:>10} {:>12} {:>12}  {}\n", tier["name"].get<std::string>(),
               tier["kind"].get<std::string>(), tier["own_blocks"].get<std::uint64_t>(),
               tier["others_blocks"].get<std::uint64_t>(),
               format_size(tier["block_bytes"].get<std::uint64_t>()),
               format_size(tier["capacity_bytes"].get<std::uint64_t>()),
               tier["mode"].get<std::string>());
  }
}

}  // namespace

InspectCommand::InspectCommand(CLI::App& app)
    : app_(app.add_subcommand("inspect", "Opens tiers and says what they hold.")) {
  add_engine_settings(table_, config_);
  add_replay_settings(table_, replay_);
  add_options(*app_, table_, line_);
}

Status InspectCommand::inspect() {
  if (Status status = apply(line_, table_, config_); !status.is_ok()) return status;
  if (config_.tiers.empty()) {
    return {Code::kInvalidArgument, "nothing to inspect: give --tier NAME=KIND:PATH,cap=SIZE"};
  }
  if (Status status = setup_logging(0, config_.log); !status.is_ok()) return status;
  const auto shape = shape_of(replay_);
  if (!shape) return shape.error();
  derive_settings(config_, table_, *shape);
  // One process alone: ranks of a job would take each other's directories for those of the dead.
  auto bootstrap =
      open_bootstrap(replay_.bootstrap == "auto" ? "solo" : replay_.bootstrap, config_.node);
  if (!bootstrap) return bootstrap.error();
  JobOptions options;
  options.config = config_;
  options.namespace_fingerprint = namespace_fingerprint(namespace_of(replay_, *shape));
  options.clock = &SteadyClock::instance();
  auto job = Job::open(**bootstrap, std::move(options));
  if (!job) return job.error();
  Engine& engine = *(*job)->engines().front();
  const Status refreshed = engine.refresh(SteadyClock::instance().now() + 30 * kSecond);
  if (!refreshed.is_ok()) return refreshed;
  const auto tiers = contents_json(engine);
  Status status;
  if (line_.json_path.empty()) {
    print_text(tiers);
  } else {
    status = write_json(line_.json_path, {{"tiers", tiers}});
  }
  (*job)->close();
  (*bootstrap)->leave();
  return status;
}

int InspectCommand::run() {
  const Status status = inspect();
  if (status.is_ok()) return kExitGood;
  print_error(status, launcher_rank());
  return kExitBadInput;
}

}  // namespace kvstream
