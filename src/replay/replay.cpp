#include "replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/units.hpp"
#include "replay/agreement.hpp"
#include "replay/comparison.hpp"
#include "replay/rank_report.hpp"
#include "replay/report.hpp"
#include "replay/start_contents.hpp"
#include "replay/timeline.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

// One rank may still play its last requests long after another has ended.
constexpr Nanos kSide_ns = 3600 * kSecond;
constexpr Nanos kSetup_ns = 300 * kSecond;
constexpr Nanos kRefresh_ns = 30 * kSecond;

/// What one run of one side left; the input is there on rank 0 only.
struct Played {
  SideInput input;
  bool interrupted = false;
};

class Replay {
 public:
  Replay(const ReplayOptions& options, const ReplayParts& parts, RunDevices devices)
      : options_(options),
        parts_(parts),
        group_(*parts.group),
        engine_(*parts.engine),
        devices_(std::move(devices)) {}

  Result<ReplayOutcome> run();

 private:
  Status prepare();
  Status open_loop();
  Result<Played> play_side(const Side& side, std::size_t pair);
  Result<Played> gather(const Side& side, const RankRun& run, const RankCost& cost,
                        std::string hash);
  Result<RankRun> play_all(const Side& side, std::size_t pair);
  ReplayOutcome conclude();
  void judge(ReplayOutcome& outcome) const;
  ComparisonContext context() const;
  Status merge();
  Status write_timeline();
  void say(const std::string& what, std::uint64_t done, std::uint64_t all) const {
    if (parts_.progress) parts_.progress(what, done, all);
  }

  const ReplayOptions& options_;
  const ReplayParts& parts_;
  Group& group_;
  Engine& engine_;
  RunDevices devices_;
  std::vector<TraceRequest> mine_;
  std::unique_ptr<ReplayLoop> loop_;  ///< one of the two
  std::unique_ptr<ServingLoop> serving_;
  std::unique_ptr<StartContents> start_;
  std::vector<SideRuns> played_;
  struct OneInput {
    std::size_t side = 0, pair = 0;
    SideInput input;
  };
  std::vector<OneInput> inputs_;
  bool any_played_ = false;
  bool interrupted_ = false;  ///< by a signal; what was played before is reported
};

Status Replay::prepare() {
  for (const auto& request : options_.requests) {
    if (request.rank == group_.rank()) mine_.push_back(request);
  }
  if (Status status = agree(group_, open_loop()); !status.is_ok()) return status;
  for (const auto& side : options_.sides) played_.push_back({side, {}});
  start_ = std::make_unique<StartContents>(options_, parts_, mine_);
  return devices_.measure(group_, options_.calibrate, options_.calibration);
}

Status Replay::open_loop() {
  if (options_.serving) {
    ServingOptions serving = *options_.serving;
    serving.clock = parts_.clock;
    serving.stop = parts_.stop;
    auto opened = ServingLoop::open({{&engine_, mine_}}, serving);
    if (!opened) return opened.error();
    serving_ = std::move(*opened);
    return Status::ok();
  }
  LoopOptions loop = options_.loop;
  loop.clock = parts_.clock;
  loop.stop = parts_.stop;
  auto opened = ReplayLoop::open(engine_, mine_, loop);
  if (!opened) return opened.error();
  loop_ = std::move(*opened);
  return Status::ok();
}

Result<RankRun> Replay::play_all(const Side& side, std::size_t pair) {
  const std::string what =
      options_.pairs > 1 ? fmt::format("{} {}/{}", side.name, pair + 1, options_.pairs) : side.name;
  const SlowSchedule slow(options_.slow, parts_.set_speed, *parts_.clock, parts_.clock->now());
  const auto progress = [&](std::uint32_t done) { say(what, done, mine_.size()); };
  if (!serving_) return loop_->play(side.mode, progress);
  return play_serving(*serving_, engine_, side.mode, *parts_.clock, progress);
}

Result<Played> Replay::play_side(const Side& side, std::size_t pair) {
  if (restores(options_)) {
    if (Status status = start_->put_back(); !status.is_ok()) return failure(status);
  }
  Status status = agree(group_, engine_.refresh(parts_.clock->now() + kRefresh_ns), kSetup_ns);
  if (!status.is_ok()) return failure(status);
  auto hash = hash_of_keys(group_, engine_, kSetup_ns);
  if (!hash) return failure(hash.error());
  const double cpu_before_s = process_cpu_s();
  const auto ticks_before = read_cpu_ticks();
  MemoryPeaks peaks;
  auto run = play_all(side, pair);
  status = agree(group_, run ? Status::ok() : run.error(), kSide_ns);
  if (!status.is_ok()) return failure(status);
  peaks.sample();
  RankCost cost;
  cost.cpu_s = process_cpu_s() - cpu_before_s;
  const auto ticks_after = read_cpu_ticks();
  if (ticks_before && ticks_after) cost.steal_share = steal_share(*ticks_before, *ticks_after);
  cost.peak_rss_bytes = peaks.peak_rss_bytes();
  cost.peak_shm_bytes = peaks.peak_shm_bytes();
  return gather(side, *run, cost, std::move(*hash));
}

Result<Played> Replay::gather(const Side& side, const RankRun& run, const RankCost& cost,
                              std::string hash) {
  RankSteps steps;
  steps.rank = group_.rank();
  steps.device_of_tier = devices_.device_of_tier();
  steps.memory_device = devices_.memory_device();
  steps.steps = run.records;
  json mine = rank_json(run, cost);
  mine["clock"] = {{"node", group_.node()}, {"start", run.started_at}, {"end", run.ended_at}};
  const auto packed = json::to_cbor(mine);
  auto figures = group_.all_gather(std::string(packed.begin(), packed.end()), kSetup_ns);
  if (!figures) return failure(figures.error());
  auto records = group_.all_gather(pack_rank_steps(steps), kSetup_ns);
  if (!records) return failure(records.error());

  Played played;
  SideInput input;
  input.side = side.name;
  input.catalog_hash = std::move(hash);
  input.time_scale = options_.loop.time_scale;
  input.bytes_scale = options_.loop.shape.bytes_scale;
  for (const auto& bytes : figures->bytes) {
    input.ranks.push_back(json::from_cbor(bytes, true, false));
    if (!input.ranks.back().is_object()) {
      return failure(Code::kTimedOut, "a rank did not report its side in time");
    }
    played.interrupted |= input.ranks.back()["checks"]["interrupted"].get<int>() != 0;
  }
  if (group_.rank() != 0) return played;
  // Ranks of one node share a clock; the others' begins where rank 0's did.
  const json& first = input.ranks.front()["clock"];
  input.start = kNever;
  for (std::size_t rank = 0; rank < input.ranks.size(); ++rank) {
    auto unpacked = unpack_rank_steps(records->bytes[rank]);
    if (!unpacked) return failure(unpacked.error());
    const json& clock = input.ranks[rank]["clock"];
    const Nanos start = clock["start"], end = clock["end"];
    unpacked->clock_offset =
        clock["node"] == first["node"] ? 0 : first["start"].get<Nanos>() - start;
    input.start = std::min(input.start, start + unpacked->clock_offset);
    input.end = std::max(input.end, end + unpacked->clock_offset);
    input.steps.push_back(std::move(*unpacked));
  }
  played.input = std::move(input);
  return played;
}

/// At the end, since the rates that bounds rest on are measured once more after the last side.
Status Replay::merge() {
  const auto speeds = devices_.all_known() ? devices_.speeds() : std::vector<DeviceSpeed>{};
  for (auto& [side, pair, input] : inputs_) {
    auto merged = merge_ranks(input, speeds);
    if (!merged) return merged.error();
    (*merged)["pair"] = pair;
    played_[side].runs.push_back(std::move(*merged));
  }
  return Status::ok();
}

Result<ReplayOutcome> Replay::run() {
  if (Status status = prepare(); !status.is_ok()) return failure(status);
  if (Status status = start_->fill(); !status.is_ok()) return failure(status);
  for (std::size_t pair = 0; pair < options_.pairs && !interrupted_; ++pair) {
    for (const std::size_t i : order_of_sides(options_.sides.size(), pair)) {
      auto played = play_side(options_.sides[i], pair);
      // Merging is rank 0's alone: its errors end all.
      Status status = agree(group_, played ? Status::ok() : played.error(), kSetup_ns);
      if (status.code() == Code::kClosed && any_played_) interrupted_ = true;
      if (interrupted_) break;
      if (!status.is_ok()) return failure(status);
      any_played_ = true;
      interrupted_ = interrupted_ || played->interrupted;
      if (group_.rank() == 0) inputs_.push_back({i, pair, std::move(played->input)});
      if (interrupted_) break;
    }
  }
  if (!interrupted_) {
    Status status = devices_.measure(group_, options_.calibrate, options_.calibration);
    interrupted_ = status.code() == Code::kClosed;
    if (!status.is_ok() && !interrupted_) return failure(status);
  }
  Status status = agree(group_, merge(), kSetup_ns);
  if (!status.is_ok()) return failure(status);
  status = agree(group_, write_timeline());
  if (!status.is_ok()) return failure(status);
  ReplayOutcome outcome = conclude();
  // The verdict is rank 0's; every rank ends with it.
  auto verdict = group_.broadcast(outcome.good ? "" : outcome.why_not, kSetup_ns);
  if (!verdict) return failure(verdict.error());
  outcome.good = verdict->empty();
  outcome.why_not = *verdict;
  outcome.interrupted = interrupted_;
  return outcome;
}

Status Replay::write_timeline() {
  if (options_.timeline_path.empty() || group_.rank() != 0) return Status::ok();
  std::vector<std::string> names;
  for (const auto& tier : parts_.tiers) names.push_back(tier.spec.name);
  std::vector<TimelineRun> runs;
  for (const auto& one : inputs_) {
    if (one.pair == 0) runs.push_back({one.input.side, names, one.input.steps});
  }
  return write_timeline_file(options_.timeline_path, runs);
}

ComparisonContext Replay::context() const {
  ComparisonContext context;
  context.tiers = parts_.tiers;
  context.ranks = group_.size();
  context.copies_everywhere = start_->copies_everywhere();
  if (options_.serving) context.no_ceiling = no_ceiling_reason(*options_.serving);
  const auto speeds = devices_.speeds();
  for (std::size_t tier = 0; tier < parts_.tiers.size(); ++tier) {
    std::set<std::uint32_t> devices;
    if (!inputs_.empty()) {
      for (const auto& rank : inputs_.front().input.steps)
        devices.insert(rank.device_of_tier[tier]);
    }
    double rate = 0;
    for (const std::uint32_t device : devices) rate += speeds[device].rate_bytes_per_s;
    context.devices_of_tier.push_back(static_cast<std::uint32_t>(devices.size()));
    context.read_rates_bytes_per_s.push_back(rate);
  }
  return context;
}

void Replay::judge(ReplayOutcome& outcome) const {
  const auto fail = [&](std::string why) {
    outcome.good = false;
    if (outcome.why_not.empty()) outcome.why_not = std::move(why);
  };
  std::string hash;
  for (const auto& side : played_) {
    for (const auto& run : side.runs) {
      const auto& checks = run.at("checks");
      if (checks.at("wrong_bytes").get<std::uint64_t>() > 0) {
        fail(fmt::format("side {}: {} bytes were wrong", side.side.name,
                         checks.at("wrong_bytes").get<std::uint64_t>()));
      }
      if (!checks.at("accounts_closed").get<bool>()) {
        fail(fmt::format("side {}: an account did not close: {}", side.side.name,
                         checks.at("account_that_is_open").get<std::string>()));
      }
      if (run.at("bound").is_object() && !run.at("bound").at("error").get<std::string>().empty()) {
        fail(fmt::format("side {}: {}", side.side.name,
                         run.at("bound").at("error").get<std::string>()));
      }
      const std::string here = run.at("catalog_hash_at_start");
      if (hash.empty()) hash = here;
      if (here != hash) fail("the sides did not start from the same contents");
    }
  }
}

ReplayOutcome Replay::conclude() {
  ReplayOutcome outcome;
  if (group_.rank() != 0) return outcome;
  judge(outcome);
  const double rate_scale = options_.loop.time_scale / options_.loop.shape.bytes_scale;
  const json calibration = devices_.to_json(rate_scale);
  const auto marks = devices_.marks();
  std::vector<Comparison> comparisons;
  if (!interrupted_) comparisons = compare_sides(played_, context());
  json runs = json::array();
  for (const auto& side : played_) {
    for (const auto& run : side.runs) {
      runs.push_back(run);
      runs.back()["prefill"] = start_->report();
      runs.back()["calibration"] = calibration;
      runs.back()["drifted"] = devices_.drifted();
      runs.back()["marks"] = marks;
    }
  }
  if (restores(options_)) {
    outcome.json = {{"runs", runs}, {"comparisons", json::array()}};
    for (const auto& line : comparisons) outcome.json["comparisons"].push_back(to_json(line));
  } else if (!runs.empty()) {
    outcome.json = runs.front();
  }
  TableHead head;
  head.trace = options_.trace_name;
  head.time_scale = options_.loop.time_scale;
  head.bytes_scale = options_.loop.shape.bytes_scale;
  head.tiers = parts_.tiers;
  head.about = options_.about;
  head.temperature =
      options_.prefill == Prefill::kHeld ? "warm: every block is where --held-by says"
      : options_.prefill == Prefill::kOn
          ? fmt::format("warm: what {} earlier requests left ({} blocks, {})",
                        options_.earlier.size(), start_->report().at("blocks").get<std::uint64_t>(),
                        format_size(start_->report().at("bytes").get<std::uint64_t>()))
          : "as it was found (cold, if the directories were new)";
  outcome.table = format_table(head, played_, comparisons);
  for (const auto& mark : marks) outcome.table += "\nmarked: " + mark + "\n";
  return outcome;
}

}  // namespace

Result<ReplayOutcome> run_replay(const ReplayOptions& options, const ReplayParts& parts) {
  auto devices =
      RunDevices::open(*parts.group, parts.tiers, options.copy_threads, parts.open_probe);
  if (Status status = agree(*parts.group, devices ? Status::ok() : devices.error());
      !status.is_ok()) {
    return failure(status);
  }
  Replay replay(options, parts, std::move(*devices));
  return replay.run();
}

}  // namespace kvstream
