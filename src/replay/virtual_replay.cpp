#include "replay/virtual_replay.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/comparison.hpp"
#include "replay/rank_report.hpp"
#include "replay/report.hpp"
#include "replay/timeline.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

/// A rival that falls behind its arrivals by more than this is overloaded (MEASURE section 4).
constexpr double kStableMakespanMax = 1.04;

double seconds(Nanos duration) { return static_cast<double>(duration) * 1e-9; }

double last_arrival_s(const VirtualWork& work, double time_scale) {
  Nanos last = 0;
  for (const auto& rank : work.requests) {
    for (const auto& request : rank.front()) last = std::max(last, request.arrival_ns);
  }
  return seconds(last) * time_scale;
}

std::vector<ReplayTier> tiers_of(const VirtualOptions& options) {
  std::vector<ReplayTier> tiers;
  for (const VirtualTier& tier : options.tiers) {
    ReplayTier seen{tier.spec, tier.visibility, tier.visibility != Visibility::kRank, 0};
    seen.spec.throttle.read_bytes_per_s = static_cast<std::uint64_t>(tier.model.read_bytes_per_s);
    seen.spec.throttle.write_bytes_per_s = static_cast<std::uint64_t>(tier.model.write_bytes_per_s);
    seen.spec.throttle.latency_ns = tier.model.read_latency_ns;
    tiers.push_back(std::move(seen));
  }
  return tiers;
}

class Runner {
 public:
  explicit Runner(const VirtualReplay& replay) : replay_(replay), options_(replay.options) {}

  Result<ReplayOutcome> run();

 private:
  Status find_load();
  Status play_pair(std::uint32_t pair);
  Result<json> report(const Side& side, const VirtualWork& work, VirtualOutcome outcome) const;
  json load_json(const json& run, const VirtualWork& work) const;
  ComparisonContext context() const;
  void judge(ReplayOutcome& outcome) const;
  std::string remarks() const;

  const VirtualReplay& replay_;
  VirtualOptions options_;
  std::vector<SideRuns> played_;
  std::optional<double> rate_per_s_;
  double saturated_per_s_ = 0;
  std::vector<std::uint32_t> devices_of_tier_;
  bool copies_everywhere_ = false;
  std::vector<std::vector<RankSteps>> timelines_;
  double wall_s_ = 0;
};

/// The rival alone, in a closed loop on the same list.
Status Runner::find_load() {
  if (replay_.load <= 0) return Status::ok();
  auto work = replay_.work(0, std::nullopt);
  if (!work) return work.error();
  VirtualOptions closed = options_;
  closed.serving.arrivals = Arrivals::kClosed;
  auto outcome = play_virtual(closed, *work, replay_.sides.front().mode);
  if (!outcome) return outcome.error();
  double makespan_s = 0;
  std::uint64_t requests = 0;
  for (const RankRun& run : outcome->engines) {
    makespan_s = std::max(makespan_s, run.elapsed_s);
    requests += run.requests;
  }
  if (!(makespan_s > 0)) return {Code::kInvalidArgument, "load: the rival took no time at all"};
  saturated_per_s_ = static_cast<double>(requests) / makespan_s * options_.serving.time_scale;
  rate_per_s_ = replay_.load * saturated_per_s_;
  options_.serving.arrivals = Arrivals::kTrace;
  return Status::ok();
}

Result<json> Runner::report(const Side& side, const VirtualWork& work,
                            VirtualOutcome outcome) const {
  SideInput input;
  input.side = side.name;
  input.catalog_hash = work.catalog_hash;
  for (const RankRun& run : outcome.engines) input.ranks.push_back(rank_json(run, {}));
  input.steps = std::move(outcome.steps);
  input.time_scale = options_.serving.time_scale;
  input.bytes_scale = options_.serving.shape.bytes_scale;
  input.start = outcome.start;
  input.end = outcome.end;
  const bool bounded = options_.settings.record_steps &&
                       std::all_of(outcome.devices.begin(), outcome.devices.end(),
                                   [](const auto& d) { return d.rate_bytes_per_s > 0; });
  auto merged = merge_ranks(input, bounded ? outcome.devices : std::vector<DeviceSpeed>{});
  if (!merged) return merged;
  if (!options_.settings.record_steps) (*merged)["read_busy_share"] = nullptr;
  (*merged)["ranks"] = options_.node_of_rank.size();
  (*merged)["shards"] = options_.shards;
  (*merged)["virtual_time"] = true;
  (*merged)["checks"]["bytes_verified"] = (*merged)["checks"]["wrong_bytes"] = nullptr;  // no bytes
  (*merged)["load"] = load_json(*merged, work);
  return merged;
}

json Runner::load_json(const json& run, const VirtualWork& work) const {
  if (options_.serving.arrivals == Arrivals::kClosed) return nullptr;
  const double last_s = last_arrival_s(work, options_.serving.time_scale);
  const double makespan_s = run.at("makespan_s");
  const double behind = last_s > 0 ? makespan_s / last_s : 0;
  return {{"fraction", replay_.load > 0 ? json(replay_.load) : json(nullptr)},
          {"rate_per_s", rate_per_s_ ? json(*rate_per_s_) : json(nullptr)},
          {"saturated_per_s", saturated_per_s_ > 0 ? json(saturated_per_s_) : json(nullptr)},
          {"last_arrival_s", last_s},
          {"makespan_over_last_arrival", behind},
          {"stable", last_s > 0 && behind <= kStableMakespanMax}};
}

Status Runner::play_pair(std::uint32_t pair) {
  auto work = replay_.work(pair, rate_per_s_);
  if (!work) return work.error();
  const std::uint64_t all_tiers = (std::uint64_t{1} << options_.tiers.size()) - 1;
  copies_everywhere_ = !work->places.empty();
  for (const auto& rank : work->places) {
    for (const auto& place : rank) copies_everywhere_ &= place.tiers == all_tiers;
  }
  for (std::size_t i = 0; i < replay_.sides.size(); ++i) {
    auto outcome = play_virtual(options_, *work, replay_.sides[i].mode);
    if (!outcome) return outcome.error();
    wall_s_ += outcome->wall_s;
    if (pair == 0 && !replay_.timeline_path.empty()) timelines_.push_back(outcome->steps);
    auto run = report(replay_.sides[i], *work, std::move(*outcome));
    if (!run) return run.error();
    (*run)["pair"] = pair;
    played_[i].runs.push_back(std::move(*run));
  }
  return Status::ok();
}

ComparisonContext Runner::context() const {
  ComparisonContext context;
  context.tiers = tiers_of(options_);
  context.ranks = static_cast<std::uint32_t>(options_.node_of_rank.size());
  context.copies_everywhere = copies_everywhere_;
  context.no_ceiling = no_ceiling_reason(options_.serving);
  auto nodes = options_.node_of_rank;
  std::sort(nodes.begin(), nodes.end());
  const auto count_nodes =
      static_cast<std::uint32_t>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
  for (const VirtualTier& tier : options_.tiers) {
    const std::uint32_t devices = tier.visibility == Visibility::kJob ? 1
                                  : is_per_rank(tier)                 ? context.ranks
                                                                      : count_nodes;
    context.devices_of_tier.push_back(devices);
    context.read_rates_bytes_per_s.push_back(devices * tier.model.read_bytes_per_s);
  }
  return context;
}

void Runner::judge(ReplayOutcome& outcome) const {
  for (const auto& side : played_) {
    for (const auto& run : side.runs) {
      if (!run.at("checks").at("accounts_closed").get<bool>() && outcome.good) {
        outcome.good = false;
        outcome.why_not =
            fmt::format("side {}: an account did not close: {}", side.side.name,
                        run.at("checks").at("account_that_is_open").get<std::string>());
      }
    }
  }
}

std::string Runner::remarks() const {
  std::string text;
  const auto& rival = played_.front();
  const bool overloaded = std::any_of(rival.runs.begin(), rival.runs.end(), [](const json& run) {
    return run.at("load").is_object() && !run.at("load").at("stable").get<bool>();
  });
  if (overloaded) {
    text += fmt::format(
        "\n{} does not keep up with these arrivals (makespan above {} x the last arrival): "
        "overload, its times say nothing.\n",
        rival.side.name, kStableMakespanMax);
  }
  text += fmt::format(
      "\nvirtual time: tiers and forward passes are modelled; simulated in {:.1f} s\n", wall_s_);
  return text;
}

Result<ReplayOutcome> Runner::run() {
  for (const auto& side : replay_.sides) played_.push_back({side, {}});
  if (Status status = find_load(); !status.is_ok()) return failure(status);
  for (std::uint32_t pair = 0; pair < replay_.pairs; ++pair) {
    if (Status status = play_pair(pair); !status.is_ok()) return failure(status);
    if (options_.stop != nullptr && options_.stop->load()) break;
  }
  ReplayOutcome outcome;
  outcome.interrupted = options_.stop != nullptr && options_.stop->load();
  judge(outcome);
  std::vector<Comparison> comparisons;
  if (!outcome.interrupted) comparisons = compare_sides(played_, context());
  json runs = json::array();
  for (const auto& side : played_) {
    for (const auto& run : side.runs) runs.push_back(run);
  }
  if (runs.size() > 1) {
    outcome.json = {{"runs", runs}, {"comparisons", json::array()}};
    for (const auto& line : comparisons) outcome.json["comparisons"].push_back(to_json(line));
  } else if (!runs.empty()) {
    outcome.json = runs.front();
  }
  TableHead head;
  head.trace = replay_.trace_name;
  head.time_scale = options_.serving.time_scale;
  head.bytes_scale = options_.serving.shape.bytes_scale;
  head.tiers = tiers_of(options_);
  head.temperature = replay_.temperature;
  head.about = replay_.about;
  head.speeds = TableHead::Speeds::kModelled;
  outcome.table = format_table(head, played_, comparisons) + remarks();
  if (!replay_.timeline_path.empty()) {
    std::vector<std::string> names;
    for (const auto& tier : options_.tiers) names.push_back(tier.spec.name);
    std::vector<TimelineRun> lines;
    for (std::size_t i = 0; i < timelines_.size(); ++i) {
      lines.push_back({replay_.sides[i].name, names, timelines_[i]});
    }
    if (Status status = write_timeline_file(replay_.timeline_path, lines); !status.is_ok()) {
      return failure(status);
    }
  }
  return outcome;
}

}  // namespace

Result<ReplayOutcome> run_virtual_replay(const VirtualReplay& replay) {
  if (replay.sides.empty() || replay.options.node_of_rank.empty() || replay.options.tiers.empty()) {
    return failure(Code::kInvalidArgument, "virtual time wants a side, a rank and a tier");
  }
  return Runner(replay).run();
}

}  // namespace kvstream
