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
#include "replay/virtual_run.hpp"

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
      : options_(options), parts_(parts), group_(*parts.group), devices_(std::move(devices)) {}

  Result<ReplayOutcome> run();

 private:
  Status prepare();
  Status open_loop();
  Result<Played> play_side(const Side& side, std::size_t pair);
  Status refresh() const;
  Result<Played> gather(const Side& side, std::span<const RankRun> runs, const RankCost& cost,
                        std::string hash);
  RankSteps steps_of(std::span<const RankRun> runs, std::uint32_t shard) const;
  Status take_steps(std::span<const Gathered> records, SideInput& input) const;
  Result<std::vector<RankRun>> play_all(const Side& side, std::size_t pair);
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
  RunDevices devices_;
  std::vector<std::vector<TraceRequest>> mine_;  ///< by shard: own keys
  std::unique_ptr<ReplayLoop> loop_;             ///< one of the two
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
  mine_.resize(parts_.engines.size());
  for (const auto& request : options_.requests) {
    if (request.rank != group_.rank()) continue;
    for (std::uint32_t shard = 0; shard < mine_.size(); ++shard) {
      mine_[shard].push_back(request);
      for (BlockKey& key : mine_[shard].back().keys) key = shard_key(key, shard);
    }
  }
  if (Status status = agree(group_, open_loop()); !status.is_ok()) return status;
  for (const auto& side : options_.sides) played_.push_back({side, {}});
  start_ = std::make_unique<StartContents>(options_, parts_, mine_.front());
  return devices_.measure(group_, options_.calibrate, options_.calibration);
}

Status Replay::open_loop() {
  if (options_.serving) {
    ServingOptions serving = *options_.serving;
    serving.clock = parts_.clock;
    serving.stop = parts_.stop;
    std::vector<ServingShard> shards;
    for (std::size_t s = 0; s < mine_.size(); ++s) shards.push_back({parts_.engines[s], mine_[s]});
    auto opened = ServingLoop::open(std::move(shards), serving);
    if (!opened) return opened.error();
    serving_ = std::move(*opened);
    return Status::ok();
  }
  LoopOptions loop = options_.loop;
  loop.clock = parts_.clock;
  loop.stop = parts_.stop;
  auto opened = ReplayLoop::open(*parts_.engines.front(), mine_.front(), loop);
  if (!opened) return opened.error();
  loop_ = std::move(*opened);
  return Status::ok();
}

Result<std::vector<RankRun>> Replay::play_all(const Side& side, std::size_t pair) {
  const std::string what =
      options_.pairs > 1 ? fmt::format("{} {}/{}", side.name, pair + 1, options_.pairs) : side.name;
  const SlowSchedule slow(options_.slow, parts_.set_speed, *parts_.clock, parts_.clock->now());
  const auto progress = [&](std::uint32_t done) { say(what, done, mine_.front().size()); };
  if (serving_) return play_serving(*serving_, side.mode, *parts_.clock, progress);
  auto run = loop_->play(side.mode, progress);
  if (!run) return failure(run.error());
  return std::vector<RankRun>{std::move(*run)};
}

Status Replay::refresh() const {
  const Nanos deadline = parts_.clock->now() + kRefresh_ns;
  for (Engine* engine : parts_.engines) {
    if (Status status = engine->refresh(deadline); !status.is_ok()) return status;
  }
  return Status::ok();
}

Result<Played> Replay::play_side(const Side& side, std::size_t pair) {
  if (restores(options_)) {
    if (Status status = start_->put_back(); !status.is_ok()) return failure(status);
  }
  Status status = agree(group_, refresh(), kSetup_ns);
  if (!status.is_ok()) return failure(status);
  auto hash = hash_of_keys(group_, parts_.engines, kSetup_ns);
  if (!hash) return failure(hash.error());
  const double cpu_before_s = process_cpu_s();
  const auto ticks_before = read_cpu_ticks();
  MemoryPeaks peaks;
  auto runs = play_all(side, pair);
  status = agree(group_, runs ? Status::ok() : runs.error(), kSide_ns);
  if (!status.is_ok()) return failure(status);
  peaks.sample();
  RankCost cost;
  cost.cpu_s = process_cpu_s() - cpu_before_s;
  const auto ticks_after = read_cpu_ticks();
  if (ticks_before && ticks_after) cost.steal_share = steal_share(*ticks_before, *ticks_after);
  cost.peak_rss_bytes = peaks.peak_rss_bytes();
  cost.peak_shm_bytes = peaks.peak_shm_bytes();
  return gather(side, *runs, cost, std::move(*hash));
}

/// Figures and step records of every engine of every rank: by rank, shard.
Result<Played> Replay::gather(const Side& side, std::span<const RankRun> runs, const RankCost& cost,
                              std::string hash) {
  json mine = json::array();
  for (std::size_t shard = 0; shard < runs.size(); ++shard) {
    // What the process took is said once.
    mine.push_back(rank_json(runs[shard], shard == 0 ? cost : RankCost{}));
  }
  mine.front()["clock"] = {
      {"node", group_.node()}, {"start", runs.front().started_at}, {"end", runs.front().ended_at}};
  const auto packed = json::to_cbor(mine);
  auto figures = group_.all_gather(std::string(packed.begin(), packed.end()), kSetup_ns);
  if (!figures) return failure(figures.error());
  std::vector<Gathered> records;
  for (std::uint32_t shard = 0; shard < runs.size(); ++shard) {
    auto of_shard = group_.all_gather(pack_rank_steps(steps_of(runs, shard)), kSetup_ns);
    if (!of_shard) return failure(of_shard.error());
    records.push_back(std::move(*of_shard));
  }

  Played played;
  SideInput input;
  input.side = side.name;
  input.catalog_hash = std::move(hash);
  input.time_scale = options_.loop.time_scale;
  input.bytes_scale = options_.loop.shape.bytes_scale;
  for (const auto& bytes : figures->bytes) {
    json engines = json::from_cbor(bytes, true, false);
    if (!engines.is_array() || engines.size() != runs.size()) {
      return failure(Code::kTimedOut, "a rank did not report its side in time");
    }
    for (json& engine : engines) {
      played.interrupted |= engine["checks"]["interrupted"].get<int>() != 0;
      input.ranks.push_back(std::move(engine));
    }
  }
  if (group_.rank() != 0) return played;
  if (Status status = take_steps(records, input); !status.is_ok()) return failure(status);
  played.input = std::move(input);
  return played;
}

RankSteps Replay::steps_of(std::span<const RankRun> runs, std::uint32_t shard) const {
  RankSteps steps;
  steps.rank = group_.rank() * static_cast<std::uint32_t>(runs.size()) + shard;
  steps.device_of_tier = devices_.device_of_tier();
  steps.memory_device = devices_.memory_device();
  steps.steps = runs[shard].records;
  return steps;
}

/// Puts `records` (by shard) behind the ranks' figures, on one time axis.
Status Replay::take_steps(std::span<const Gathered> records, SideInput& input) const {
  // Ranks of one node share a clock; the others' begins where rank 0's did.
  const json& first = input.ranks.front()["clock"];
  input.start = kNever;
  for (std::size_t rank = 0; rank < records.front().bytes.size(); ++rank) {
    const json& clock = input.ranks[rank * records.size()]["clock"];
    const Nanos start = clock["start"], end = clock["end"];
    const Nanos offset = clock["node"] == first["node"] ? 0 : first["start"].get<Nanos>() - start;
    input.start = std::min(input.start, start + offset);
    input.end = std::max(input.end, end + offset);
    for (const Gathered& of_shard : records) {
      auto unpacked = unpack_rank_steps(of_shard.bytes[rank]);
      if (!unpacked) return unpacked.error();
      unpacked->clock_offset = offset;
      input.steps.push_back(std::move(*unpacked));
    }
  }
  return Status::ok();
}

/// At the end, since the rates that bounds rest on are measured once more after the last side.
Status Replay::merge() {
  const auto speeds = devices_.all_known() ? devices_.speeds() : std::vector<DeviceSpeed>{};
  for (auto& [side, pair, input] : inputs_) {
    auto merged = merge_ranks(input, speeds);
    if (!merged) return merged.error();
    (*merged)["pair"] = pair;
    (*merged)["ranks"] = group_.size();
    (*merged)["shards"] = parts_.engines.size();
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
  if (parts.engines.empty() || (parts.engines.size() > 1 && !options.serving)) {
    return failure(Code::kInvalidArgument,
                   "a replay wants an engine, and for several shards the serving engine's model");
  }
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
