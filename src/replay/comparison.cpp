#include "replay/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "replay/ceiling.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

constexpr double kHitRatioNote = 0.02;

double number(const json& run, const json::json_pointer& at) {
  const json& value = run.at(at);
  return value.is_number() ? value.get<double>() : 0.0;
}

std::vector<double> values_of(const SideRuns& side, const char* at) {
  std::vector<double> values;
  for (const auto& run : side.runs) values.push_back(number(run, json::json_pointer(at)));
  return values;
}

double mean_of(const SideRuns& side, const char* at) {
  const auto values = values_of(side, at);
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// The tiers that a side reads from, in order of preference.
std::vector<std::size_t> tiers_of(const Mode& mode, const ComparisonContext& context) {
  std::vector<std::size_t> tiers;
  for (std::size_t i = 0; i < context.tiers.size(); ++i) {
    const auto& names = mode.use_tiers;
    const bool used = names.empty() || std::find(names.begin(), names.end(),
                                                 context.tiers[i].spec.name) != names.end();
    if (used) tiers.push_back(i);
  }
  return tiers;
}

bool rates_known(const std::vector<std::size_t>& tiers, const ComparisonContext& context) {
  return std::all_of(tiers.begin(), tiers.end(), [&](std::size_t tier) {
    return tier < context.read_rates_bytes_per_s.size() && context.read_rates_bytes_per_s[tier] > 0;
  });
}

bool first_hit_only(const Mode& mode) {
  return mode.policy == ReadPolicy::kSerial || mode.policy == ReadPolicy::kPooled;
}

/// MEASURE section 2: a rival that reads from one tier alone, all blocks being on all tiers.
bool reads_one_tier(const SideRuns& rival, const ComparisonContext& context) {
  return first_hit_only(rival.side.mode) &&
         (context.copies_everywhere || tiers_of(rival.side.mode, context).size() == 1);
}

void put_read_ceiling(Comparison& line, const SideRuns& side, const SideRuns& rival,
                      const ComparisonContext& context) {
  const auto ours = tiers_of(side.side.mode, context);
  const auto theirs = tiers_of(rival.side.mode, context);
  if (context.ranks != 1 || !context.copies_everywhere || theirs.empty() ||
      !reads_one_tier(rival, context) || !rates_known(ours, context) ||
      !rates_known(theirs, context)) {
    return;
  }
  std::vector<double> rates{context.read_rates_bytes_per_s[theirs.front()]};
  for (const std::size_t tier : ours) {
    if (tier != theirs.front()) rates.push_back(context.read_rates_bytes_per_s[tier]);
  }
  line.ceiling = read_time_ceiling(rates);
  line.ceiling_formula = "(b1 + b2 + ...) / b1";
}

double write_rate_of(std::size_t tier, const ComparisonContext& context) {
  const std::uint32_t devices =
      tier < context.devices_of_tier.size() ? context.devices_of_tier[tier] : 1;
  return devices * static_cast<double>(context.tiers[tier].spec.throttle.write_bytes_per_s);
}

std::vector<TierRates> rates_of(const std::vector<std::size_t>& tiers,
                                const ComparisonContext& context) {
  std::vector<TierRates> rates;
  for (const std::size_t tier : tiers) {
    const double write = write_rate_of(tier, context);
    rates.push_back({context.read_rates_bytes_per_s[tier], write > 0 ? write : 1e18});
  }
  return rates;
}

/// Mean over the runs of bytes / (rate x makespan): how much of the time a device was moving them.
double busy_share(const SideRuns& side, const char* bytes, const std::string& tier, double rate) {
  const std::string at = std::string(bytes) + tier;
  double sum = 0;
  for (const auto& run : side.runs) {
    const double makespan_s = number(run, json::json_pointer("/makespan_s"));
    if (makespan_s > 0 && rate > 0) sum += number(run, json::json_pointer(at)) / rate / makespan_s;
  }
  return side.runs.empty() ? 0 : sum / static_cast<double>(side.runs.size());
}

/// MEASURE section 2. One rank waits for nobody else's reads, so its waits shrink with the devices'
/// rates (A). Several ranks also wait in each other's queues, which a faster device may empty:
/// there A is what neither reads nor writes, and D the devices' own busy time.
void put_formula(Comparison& line, const SideRuns& side, const SideRuns& rival,
                 const ComparisonContext& context, const std::vector<std::size_t>& ours) {
  const double s_r = mean_of(rival, "/io_share"), s_w = mean_of(rival, "/write_wait_share");
  const auto rates = rates_of(ours, context);
  const Replication replication = side.side.mode.replication;
  ThroughputCeiling ceiling = throughput_ceiling(rates, {s_r, s_w, 0}, replication);
  if (context.ranks > 1) {
    const std::string& name = context.tiers[ours.front()].spec.name;
    const RivalShares busy{
        busy_share(rival, "/bytes/read/", name, rates.front().read_bytes_per_s),
        s_w > 0 ? busy_share(rival, "/bytes/written/", name, rates.front().write_bytes_per_s) : 0,
        0};
    ceiling.d = throughput_ceiling(rates, busy, replication).d;
    ceiling.a = 1 - s_r - s_w;
    const double least = std::max(ceiling.a, ceiling.d);
    if (least <= 0) return;
    ceiling.ceiling = 1 / least;
  }
  line.ceiling = ceiling.ceiling;
  line.ceiling_formula = fmt::format("1 / max(A = {:.3f}, D = {:.3f})", ceiling.a, ceiling.d);
}

/// Where the rival itself reads from several tiers: its reads can shrink to T*, its waits for
/// writes to nothing.
void put_bound_ceiling(Comparison& line, const SideRuns& rival, const ComparisonContext& context) {
  const bool bound = std::all_of(rival.runs.begin(), rival.runs.end(),
                                 [](const json& run) { return run.at("bound").is_object(); });
  if (!bound) return;
  const double s_r = mean_of(rival, "/io_share"), s_w = mean_of(rival, "/write_wait_share");
  const double t_star = mean_of(rival, "/bound/t_star_all_s"), t = mean_of(rival, "/bound/t_all_s");
  if (context.ranks > 1) {
    const double busy = mean_of(rival, "/bound/t_star_all_s") / mean_of(rival, "/makespan_s");
    const double least = std::max(1 - s_r - s_w, busy);
    if (!(least > 0)) return;
    line.ceiling = 1 / least;
    line.ceiling_formula =
        fmt::format("1 / max(1 - s_r - s_w = {:.3f}, T*/makespan = {:.3f})", 1 - s_r - s_w, busy);
    return;
  }
  const double shrunk = t > 0 ? std::min(1.0, t_star / t) : 1.0;
  const double left = 1 - s_r - s_w + s_r * shrunk;
  if (left <= 0) return;
  line.ceiling = 1 / left;
  line.ceiling_formula =
      fmt::format("1 / (1 - s_r - s_w + s_r T*/T), s_r = {:.3f}, s_w = {:.3f}, T*/T = {:.3f}", s_r,
                  s_w, shrunk);
}

void put_throughput_ceiling(Comparison& line, const SideRuns& side, const SideRuns& rival,
                            const ComparisonContext& context) {
  const bool alike = std::abs(mean_of(side, "/blocks/hit_ratio") -
                              mean_of(rival, "/blocks/hit_ratio")) <= kHitRatioNote;
  const auto ours = tiers_of(side.side.mode, context);
  const auto theirs = tiers_of(rival.side.mode, context);
  if (!alike || ours.empty() || theirs.empty() || !rates_known(ours, context)) return;
  const bool writes_known = mean_of(rival, "/write_wait_share") == 0 ||
                            std::all_of(ours.begin(), ours.end(), [&](std::size_t tier) {
                              return write_rate_of(tier, context) > 0;
                            });
  if (reads_one_tier(rival, context) && writes_known && ours.front() == theirs.front()) {
    put_formula(line, side, rival, context, ours);
  } else {
    put_bound_ceiling(line, rival, context);
  }
}

std::string note_on(const SideRuns& side, const SideRuns& rival) {
  std::string note;
  const auto add = [&](std::string text) { note += (note.empty() ? "" : "; ") + std::move(text); };
  for (std::size_t p = 0; p < std::min(side.runs.size(), rival.runs.size()); ++p) {
    if (side.runs[p].at("catalog_hash_at_start") == rival.runs[p].at("catalog_hash_at_start"))
      continue;
    add("the tiers' contents at the start differed");
    break;
  }
  const double ours = mean_of(side, "/blocks/hit_ratio"),
               theirs = mean_of(rival, "/blocks/hit_ratio");
  if (std::abs(ours - theirs) > kHitRatioNote) {
    add(fmt::format("hit ratios differ by {:.1f} points ({:.1f} % and {:.1f} %)",
                    100 * std::abs(ours - theirs), 100 * ours, 100 * theirs));
  }
  const double lost = mean_of(side, "/writes/dropped"),
               lost_there = mean_of(rival, "/writes/dropped");
  if (lost > 0 || lost_there > 0) {
    add(fmt::format("dropped writes {:.0f} and {:.0f}", lost, lost_there));
  }
  if (std::max(mean_of(side, "/cost/steal_share"), mean_of(rival, "/cost/steal_share")) > 0.03) {
    add("steal time above 3 %");
  }
  return note;
}

void compare_two(const SideRuns& side, const SideRuns& rival, const ComparisonContext& context,
                 std::vector<Comparison>& lines) {
  struct Measure {
    const char* name;
    const char* at;
    bool more_is_better;
  };
  constexpr Measure kMeasures[] = {{"throughput_tokens_per_s", "/throughput_tokens_per_s", true},
                                   {"ttft_s.mean", "/ttft_s/mean", false},
                                   {"step_read_s.mean", "/step_read_s/mean", false}};
  for (const Measure& measure : kMeasures) {
    const auto ours = values_of(side, measure.at), theirs = values_of(rival, measure.at);
    auto ratio = measure.more_is_better ? paired_ratio(ours, theirs) : paired_ratio(theirs, ours);
    if (!ratio) continue;  // e.g. no-cache reads nothing
    Comparison line{measure.name, side.side.name, rival.side.name, *ratio, {}, "", ""};
    if (!context.no_ceiling.empty()) {
      line.ceiling_formula = "none: " + context.no_ceiling;
    } else if (std::string_view(measure.name) == "step_read_s.mean") {
      put_read_ceiling(line, side, rival, context);
    } else if (measure.more_is_better) {
      put_throughput_ceiling(line, side, rival, context);
    }
    line.note = note_on(side, rival);
    lines.push_back(std::move(line));
  }
}

}  // namespace

std::vector<std::size_t> order_of_sides(std::size_t sides, std::size_t pair) {
  std::vector<std::size_t> order(sides);
  for (std::size_t i = 0; i < sides; ++i) order[i] = (i + pair) % sides;
  return order;
}

std::vector<Comparison> compare_sides(std::span<const SideRuns> sides,
                                      const ComparisonContext& context) {
  std::vector<Comparison> lines;
  std::size_t completion = sides.size();
  for (std::size_t i = 0; i < sides.size() && completion == sides.size(); ++i) {
    if (sides[i].side.mode.policy == ReadPolicy::kCompletion && !sides[i].side.mode.no_cache) {
      completion = i;
    }
  }
  for (std::size_t i = 1; i < sides.size(); ++i) compare_two(sides[i], sides[0], context, lines);
  if (completion < sides.size()) {
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const bool done = i == completion || i == 0;
      if (!done) compare_two(sides[completion], sides[i], context, lines);
    }
    // The first side is ours: the others have been compared with it the other way round.
  }
  return lines;
}

}  // namespace kvstream
