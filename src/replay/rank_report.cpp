#include "replay/rank_report.hpp"

#include <algorithm>

#include "replay/statistics.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

std::uint64_t grown(std::uint64_t before, std::uint64_t after) {
  return after >= before ? after - before : 0;
}

json tiers_json(const EngineStats& before, const EngineStats& after) {
  json tiers = json::array();
  for (std::size_t i = 0; i < after.tiers.size(); ++i) {
    const TierStats& now = after.tiers[i];
    const TierStats& then = before.tiers[i];
    tiers.push_back({{"name", now.name},
                     {"kind", now.kind},
                     {"mode", now.report.mode},
                     {"hits", grown(then.hits, now.hits)},
                     {"read_bytes", grown(then.read_bytes, now.read_bytes)},
                     {"written_bytes", grown(then.written_bytes, now.written_bytes)},
                     {"errors", grown(then.read_errors + then.write_errors,
                                      now.read_errors + now.write_errors)},
                     {"corrupt", grown(then.corrupt, now.corrupt)},
                     {"recycled", grown(then.recycled, now.recycled)},
                     {"evicted", grown(then.evicted, now.evicted)},
                     {"hedges", grown(then.hedges, now.hedges)},
                     {"overdue", grown(then.overdue, now.overdue)},
                     {"rate_bytes_per_s", now.rate_bytes_per_s},
                     {"lone_latency_s", static_cast<double>(now.lone_latency_ns) * 1e-9},
                     {"window_bytes", now.window_bytes},
                     {"capacity_bytes", now.report.capacity_bytes},
                     {"used_bytes", now.report.used_bytes}});
  }
  return tiers;
}

double sum(const std::vector<json>& ranks, const char* section, const char* name) {
  double total = 0;
  for (const auto& rank : ranks) total += rank.at(section).at(name).get<double>();
  return total;
}

std::uint64_t count(const std::vector<json>& ranks, const char* section, const char* name) {
  std::uint64_t total = 0;
  for (const auto& rank : ranks) total += rank.at(section).at(name).get<std::uint64_t>();
  return total;
}

double greatest(const std::vector<json>& ranks, const char* section, const char* name) {
  double most = 0;
  for (const auto& rank : ranks) most = std::max(most, rank.at(section).at(name).get<double>());
  return most;
}

std::vector<double> pooled(const std::vector<json>& ranks, const char* name) {
  std::vector<double> values;
  for (const auto& rank : ranks) {
    const auto& more = rank.at("samples").at(name);
    for (const auto& value : more) values.push_back(value.get<double>());
  }
  return values;
}

/// Sums a field of each tier, by name.
json per_tier(const std::vector<json>& ranks, const char* field) {
  json sums = json::object();
  for (const auto& rank : ranks) {
    for (const auto& tier : rank.at("tiers")) {
      const std::string name = tier.at("name");
      sums[name] = sums.value(name, std::uint64_t{0}) + tier.at(field).get<std::uint64_t>();
    }
  }
  return sums;
}

json modes(const std::vector<json>& ranks) {
  json all = json::object();
  for (const auto& rank : ranks) {
    for (const auto& tier : rank.at("tiers")) {
      const std::string name = tier.at("name"), mode = tier.at("mode");
      if (!all.contains(name)) all[name] = mode;
      // Ranks may differ, and then both are said.
      else if (all[name].get<std::string>().find(mode) == std::string::npos)
        all[name] = all[name].get<std::string>() + " | " + mode;
    }
  }
  return all;
}

json health(const std::vector<json>& ranks) {
  json all = json::object();
  for (const char* field : {"errors", "corrupt", "recycled", "evicted", "hedges", "overdue"}) {
    all[field] = per_tier(ranks, field);
  }
  return all;
}

/// What the dispatchers had learnt of each tier at the end: the mean over the ranks.
json learnt(const std::vector<json>& ranks) {
  json all = json::object();
  for (const auto& rank : ranks) {
    for (const auto& tier : rank.at("tiers")) {
      json& mean = all[tier.at("name").get<std::string>()];
      for (const char* field : {"rate_bytes_per_s", "lone_latency_s", "window_bytes"}) {
        const double sum = mean.is_null() ? 0 : mean.value(field, 0.0);
        mean[field] = sum + tier.at(field).get<double>() / static_cast<double>(ranks.size());
      }
    }
  }
  return all;
}

Result<json> bound_json(const SideInput& input, std::span<const DeviceSpeed> speeds) {
  if (speeds.empty()) return json(nullptr);
  auto report = find_busy_periods(speeds, input.steps);
  if (!report) return failure(report.error());
  json bound = to_json(*report, input.time_scale / input.bytes_scale);
  // What no policy can beat, of all periods: also of those too short to be judged by.
  double t_star_all_s = 0, t_all_s = 0;
  for (const auto& period : report->periods) {
    t_star_all_s += period.t_star_s;
    t_all_s += period.t_s;
  }
  bound["t_star_all_s"] = t_star_all_s;
  bound["t_all_s"] = t_all_s;
  bound["error"] = check_bound(*report).message();
  return bound;
}

json tokens_json(const std::vector<json>& ranks) {
  return {{"prompt", count(ranks, "tokens", "prompt")},
          {"cached_device", count(ranks, "tokens", "cached_device")},
          {"cached", count(ranks, "tokens", "cached")},
          {"computed", count(ranks, "tokens", "computed")},
          {"output", count(ranks, "tokens", "output")},
          {"lost_to_preemption", count(ranks, "tokens", "lost_to_preemption")},
          {"recomputed_output", count(ranks, "tokens", "recomputed_output")}};
}

json blocks_json(const std::vector<json>& ranks) {
  json blocks = {{"hit", per_tier(ranks, "hits")}};
  for (const char* field : {"asked", "looked_up", "requested", "hits", "usable", "miss", "late",
                            "cancelled", "recomputed_by_choice", "never_loaded"}) {
    blocks[field] = count(ranks, "blocks", field);
  }
  const auto asked = blocks["asked"].get<double>();
  blocks["hit_ratio"] = asked > 0 ? blocks["hits"].get<double>() / asked : 0.0;
  return blocks;
}

}  // namespace

json rank_json(const RankRun& run, const RankCost& cost) {
  const EngineStats& a = run.before;
  const EngineStats& b = run.after;
  return {{"requests",
           {{"done", run.requests},
            {"steps", run.steps},
            {"preemptions", run.preemptions},
            {"rejected", run.rejected}}},
          {"tokens",
           {{"prompt", run.prompt_tokens},
            {"cached_device", run.cached_device_tokens},
            {"cached", run.cached_tokens},
            {"computed", run.computed_tokens},
            {"output", run.output_tokens},
            {"lost_to_preemption", run.lost_tokens},
            {"recomputed_output", run.recomputed_output_tokens}}},
          {"blocks",
           {{"asked", run.blocks_asked},
            {"looked_up", grown(a.looked_up, b.looked_up)},
            {"requested", grown(a.requested, b.requested)},
            {"hits", run.hits},
            {"usable", run.usable_blocks},
            {"miss", run.misses},
            {"late", run.late},
            {"cancelled", run.cancelled},
            {"recomputed_by_choice", grown(a.recomputed_by_choice, b.recomputed_by_choice)},
            {"never_loaded", grown(a.never_loaded, b.never_loaded)},
            // The engine's own counts, to be held against what the tickets said.
            {"engine_hits", grown(a.hits, b.hits)},
            {"engine_misses", grown(a.misses, b.misses)},
            {"engine_late", grown(a.late, b.late)},
            {"engine_cancelled", grown(a.cancelled, b.cancelled)}}},
          {"bytes",
           {{"staged", grown(a.staged_bytes, b.staged_bytes)},
            {"direct", grown(a.direct_bytes, b.direct_bytes)},
            {"duplicate", grown(a.duplicate_read_bytes, b.duplicate_read_bytes)}}},
          {"writes",
           {{"offered", grown(a.offered, b.offered)},
            {"published", grown(a.published, b.published)},
            {"dropped", grown(a.dropped, b.dropped)}}},
          {"tiers", tiers_json(a, b)},
          {"time",
           {{"elapsed_s", run.elapsed_s},
            {"excluded_s", run.excluded_s},
            {"forward_s", run.forward_s},
            {"read_wait_s", run.read_wait_s},
            {"write_wait_s", run.write_wait_s},
            {"idle_s", run.idle_s}}},
          {"checks",
           {{"bytes_verified", run.bytes_verified},
            {"wrong_bytes", run.wrong_bytes},
            {"leases", b.leases},
            {"holds", b.holds},
            {"at_rest", run.at_rest ? 1 : 0},
            {"interrupted", run.interrupted ? 1 : 0}}},
          {"cost",
           {{"verify_cpu_s", run.verify_cpu_s},
            {"fill_cpu_s", run.fill_cpu_s},
            {"place_cpu_s", std::max(0.0, b.verify_cpu_s - a.verify_cpu_s)},
            {"cpu_s", cost.cpu_s},
            {"steal_share", cost.steal_share},
            {"peak_rss_bytes", cost.peak_rss_bytes},
            {"peak_shm_bytes", cost.peak_shm_bytes}}},
          {"samples",
           {{"ttft_s", run.ttft_s},
            {"e2e_s", run.e2e_s},
            {"tpot_s", run.tpot_s},
            {"step_read_s", run.step_read_s}}}};
}

Result<json> merge_ranks(const SideInput& input, std::span<const DeviceSpeed> speeds) {
  const auto& ranks = input.ranks;
  json run;
  run["side"] = input.side;
  run["ranks"] = ranks.size();
  run["requests"] = count(ranks, "requests", "done");
  run["steps"] = count(ranks, "requests", "steps");
  run["preemptions"] = count(ranks, "requests", "preemptions");
  run["rejected"] = count(ranks, "requests", "rejected");
  run["tokens"] = tokens_json(ranks);
  run["blocks"] = blocks_json(ranks);
  run["bytes"] = {{"read", per_tier(ranks, "read_bytes")},
                  {"written", per_tier(ranks, "written_bytes")},
                  {"staged", count(ranks, "bytes", "staged")},
                  {"direct", count(ranks, "bytes", "direct")},
                  {"duplicate", count(ranks, "bytes", "duplicate")}};
  run["ttft_s"] = to_json(summarize(pooled(ranks, "ttft_s")));
  run["e2e_s"] = to_json(summarize(pooled(ranks, "e2e_s")));
  run["tpot_s"] = to_json(summarize(pooled(ranks, "tpot_s")));
  run["step_read_s"] = to_json(summarize(pooled(ranks, "step_read_s")));
  const double makespan_s = greatest(ranks, "time", "elapsed_s");
  const double elapsed_s = sum(ranks, "time", "elapsed_s");
  const double tokens =
      run["tokens"]["prompt"].get<double>() + run["tokens"]["output"].get<double>();
  run["makespan_s"] = makespan_s;
  run["throughput_tokens_per_s"] = makespan_s > 0 ? tokens / makespan_s : 0.0;
  run["computed_tokens_per_s"] =
      makespan_s > 0 ? run["tokens"]["computed"].get<double>() / makespan_s : 0.0;
  run["io_share"] = elapsed_s > 0 ? sum(ranks, "time", "read_wait_s") / elapsed_s : 0.0;
  run["write_wait_share"] = elapsed_s > 0 ? sum(ranks, "time", "write_wait_s") / elapsed_s : 0.0;
  run["forward_share"] = elapsed_s > 0 ? sum(ranks, "time", "forward_s") / elapsed_s : 0.0;
  run["excluded_s"] = sum(ranks, "time", "excluded_s");
  run["read_busy_share"] = read_busy_share(input.steps, input.start, input.end);
  run["catalog_hash_at_start"] = input.catalog_hash;
  auto bound = bound_json(input, speeds);
  if (!bound) return failure(bound.error());
  run["bound"] = std::move(*bound);
  run["writes"] = {{"offered", count(ranks, "writes", "offered")},
                   {"published", count(ranks, "writes", "published")},
                   {"dropped", count(ranks, "writes", "dropped")}};
  run["health"] = health(ranks);
  run["modes"] = modes(ranks);
  run["learnt"] = learnt(ranks);
  run["cost"] = {{"verify_cpu_s", sum(ranks, "cost", "verify_cpu_s")},
                 {"fill_cpu_s", sum(ranks, "cost", "fill_cpu_s")},
                 {"place_cpu_s", sum(ranks, "cost", "place_cpu_s")},
                 {"cpu_s", sum(ranks, "cost", "cpu_s")},
                 {"steal_share", greatest(ranks, "cost", "steal_share")},
                 {"peak_rss_bytes", count(ranks, "cost", "peak_rss_bytes")},
                 {"peak_shm_bytes", count(ranks, "cost", "peak_shm_bytes")}};
  run["interrupted"] = count(ranks, "checks", "interrupted") > 0;
  const std::uint64_t leases = count(ranks, "checks", "leases");
  run["checks"] = {{"bytes_verified", count(ranks, "checks", "bytes_verified")},
                   {"wrong_bytes", count(ranks, "checks", "wrong_bytes")},
                   {"leases_at_rest", leases},
                   {"holds_at_rest", count(ranks, "checks", "holds")},
                   {"at_rest", count(ranks, "checks", "at_rest") == ranks.size()}};
  for (const char* field : {"engine_hits", "engine_misses", "engine_late", "engine_cancelled"}) {
    run["blocks"][field] = count(ranks, "blocks", field);
  }
  std::string why;
  run["checks"]["accounts_closed"] = accounts_close(run, why);
  run["checks"]["account_that_is_open"] = why;
  return run;
}

bool accounts_close(const json& run, std::string& why) {
  const json &blocks = run.at("blocks"), &writes = run.at("writes"), &tokens = run.at("tokens");
  const auto n = [](const json& where, const char* name) {
    return where.at(name).get<std::uint64_t>();
  };
  const auto check = [&](bool closes, const char* account) {
    if (!closes && why.empty()) why = account;
  };
  std::uint64_t tier_hits = 0;
  for (const auto& hits : blocks.at("hit")) tier_hits += hits.get<std::uint64_t>();
  check(n(blocks, "looked_up") ==
            n(blocks, "requested") + n(blocks, "recomputed_by_choice") + n(blocks, "never_loaded"),
        "looked_up = requested + recomputed_by_choice + never_loaded");
  check(n(blocks, "requested") ==
            n(blocks, "hits") + n(blocks, "miss") + n(blocks, "late") + n(blocks, "cancelled"),
        "requested = hits + misses + late + cancelled");
  check(n(blocks, "hits") == n(blocks, "engine_hits") &&
            n(blocks, "miss") == n(blocks, "engine_misses") &&
            n(blocks, "late") == n(blocks, "engine_late") &&
            n(blocks, "cancelled") == n(blocks, "engine_cancelled"),
        "what the tickets said = what the engine counted");
  check(tier_hits == n(blocks, "hits"), "hits = sum of the hits of all tiers");
  check(n(writes, "offered") == n(writes, "published") + n(writes, "dropped"),
        "offered = published + dropped");
  // A run that was stopped leaves prompts half done.
  check(run.at("interrupted").get<bool>() ||
            n(tokens, "prompt") + n(tokens, "lost_to_preemption") ==
                n(tokens, "cached_device") + n(tokens, "cached") + n(tokens, "computed"),
        "prompt + lost to preemption = cached_device + cached + computed");
  check(n(run.at("checks"), "leases_at_rest") == 0, "leases at rest = 0");
  check(n(run.at("checks"), "holds_at_rest") == 0, "holds at rest = 0");
  check(run.at("checks").at("at_rest").get<bool>(), "all reads and writes ended in time");
  return why.empty();
}

}  // namespace kvstream
