// One random step against fake tiers: what it wants, what goes wrong, what must hold afterwards.
#pragma once

#include <functional>

#include "step/step_rig.hpp"

namespace kvstream::rig {

struct LoopMode {
  bool faults = false, deadlines = false, late_source = false, forever = false;
  bool few_slabs = false;  ///< from one a source to 8
  double latency_ms_max = 0;
  int blocks_max = 120;
  bool true_rates = true;
  bool slow = false;  ///< source 0 slows to a tenth in mid-step
  bool placing_takes_time = false;
  std::uint32_t claim_blocks = 1;
  bool adaptive = true;
};

struct LoopTally {
  std::uint64_t runs = 0, blocks = 0, hits = 0, avoidable = 0, stuck = 0, undrained = 0;
  Violations violations;
  std::uint64_t hedges = 0, overdue = 0, slab_waits = 0, reads = 0;
  std::vector<double> ratio;
  double mean() const {
    double sum = 0;
    for (double r : ratio) sum += r;
    return ratio.empty() ? 0 : sum / static_cast<double>(ratio.size());
  }
  double percentile(double p) const {
    std::vector<double> sorted = ratio;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty()
               ? 0
               : sorted[std::min(sorted.size() - 1,
                                 static_cast<std::size_t>(p * static_cast<double>(sorted.size())))];
  }
};

/// Seconds that the reads need at least, without release times: max over source sets.
inline double least_ns(const std::vector<SourceMask>& masks, const std::vector<double>& rates) {
  double best = 0;
  for (SourceMask set = 1; set < (SourceMask{1} << rates.size()); ++set) {
    double bytes = 0, rate = 0;
    for (SourceMask mask : masks)
      if (mask != 0 && (mask & ~set) == 0) bytes += kBlockBytes;
    for (std::size_t s = 0; s < rates.size(); ++s)
      if ((set >> s & 1U) != 0) rate += rates[s];
    best = std::max(best, bytes / rate);
  }
  return best;
}

/// Runs the step of one seed. The claim log comes back for tests of determinism.
inline std::vector<StepDispatcher::Claim> run_loop(std::uint64_t seed, const LoopMode& mode,
                                                   LoopTally& tally) {
  std::mt19937_64 random(seed);
  const auto real = [&](double a, double b) {
    return std::uniform_real_distribution<>(a, b)(random);
  };
  const auto whole = [&](int a, int b) { return std::uniform_int_distribution<>(a, b)(random); };

  const int count_sources = whole(2, 4), count_blocks = whole(5, mode.blocks_max);
  const auto n = static_cast<std::size_t>(count_sources);
  const double base = real(0.1, 1.0) * 1e8;
  std::vector<Rig::SourceSpec> specs(n);
  for (auto& spec : specs) {
    spec.bytes_per_s = base * std::exp(real(0, std::log(80)));
    spec.latency = static_cast<Nanos>(real(0, mode.latency_ms_max) * kMillisecond);
    if (!mode.true_rates) spec.prior_factor = std::exp(real(-1, 1));
  }
  StepDispatcher::Options options;
  options.claim_blocks = mode.claim_blocks;
  const std::uint32_t slabs =
      mode.few_slabs ? static_cast<std::uint32_t>(std::max(count_sources, whole(1, 8))) : 512;
  Rig rig(specs, options, slabs);
  if (mode.placing_takes_time) {
    rig.placer.delay = static_cast<Nanos>(real(0, 2) * kMillisecond);
    rig.placer.ring_max = static_cast<std::size_t>(whole(1, 8));
  }

  std::vector<double> rates;
  std::vector<bool> sound(n, true);
  for (std::size_t s = 0; s < n; ++s) {
    FakeTier& tier = *rig.tiers[s];
    rates.push_back(tier.rate);
    tier.random.seed(seed * 7 + s);
    const double step_ns = count_blocks * static_cast<double>(kBlockBytes) / tier.rate;
    if (mode.slow && s == 0) {
      tier.faults.slow = 0.1;
      tier.faults.slow_at = static_cast<Nanos>(real(0, 0.8) * step_ns / count_sources);
    }
    if (!mode.faults) continue;
    if (whole(0, 2) == 0) tier.faults.error = real(0, 0.2), sound[s] = false;
    if (whole(0, 3) == 0) tier.faults.bad = real(0, 0.2), sound[s] = false;
    if (whole(0, 2) == 0) {
      tier.faults.stall_from = static_cast<Nanos>(real(0, 1) * step_ns);
      const bool ends = !(mode.forever && whole(0, 1) == 1);
      tier.faults.stall_for = ends ? static_cast<Nanos>(real(0.01, 5) * kSecond) : Nanos{1} << 60;
      if (!ends) sound[s] = false;
    }
  }

  // Blocks come in up to four groups of sources, mixed a little, as stores leave them.
  std::vector<SourceMask> groups(static_cast<std::size_t>(whole(1, 4)));
  for (auto& group : groups) group = static_cast<SourceMask>(whole(1, (1 << count_sources) - 1));
  std::vector<SourceMask> masks;
  const int count_groups = static_cast<int>(groups.size());
  for (int b = 0; b < count_blocks; ++b)
    masks.push_back(groups[static_cast<std::size_t>(
        (b * count_groups / count_blocks + (whole(0, 3) == 0 ? whole(0, count_groups - 1) : 0)) %
        count_groups)]);
  const double least = least_ns(masks, rates);

  const bool late = mode.late_source && whole(0, 1) == 1;
  const auto late_at = static_cast<Nanos>(real(0, 0.5) * least);
  const auto late_source = static_cast<SourceId>(whole(0, count_sources - 1));
  Wish wish;
  wish.round_open = late;
  wish.adaptive = mode.adaptive;
  wish.requests.emplace_back();
  std::vector<std::uint64_t> found_late;
  for (std::uint64_t b = 0; b < masks.size(); ++b) {
    SourceMask mask = masks[b];
    if (late && (mask & bit(late_source)) != 0 && whole(0, 1) == 1) {
      mask &= ~bit(late_source);
      found_late.push_back(b);
    }
    // Each block is a request of its own, so that no miss takes others with it.
    if (b > 0) wish.requests.emplace_back();
    wish.requests.back().push_back(b);
    wish.sources[b] = mask;
    if (!mode.adaptive && mask != 0) {
      wish.sources[b] = mask & (~mask + 1);
      wish.spares[b] = mask & (mask - 1);
    }
  }
  wish.deadline = mode.deadlines && whole(0, 1) == 1
                      ? static_cast<Nanos>(least * real(0.5, 8))
                      : (mode.forever ? static_cast<Nanos>(least * 20 + 2e10) : kNever);
  const Nanos cancel_at =
      mode.deadlines && whole(0, 4) == 0 ? static_cast<Nanos>(real(0, 2) * least) : kNever;
  const int dies =
      mode.faults && mode.forever && whole(0, 3) == 0 ? whole(0, count_sources - 1) : -1;
  const auto dies_at = static_cast<Nanos>(real(0, 1.5) * least);
  if (dies >= 0) sound[static_cast<std::size_t>(dies)] = false;

  RigStep& step = rig.begin(wish);
  struct Event {
    Nanos at;
    std::function<void()> act;
  };
  std::vector<Event> events;
  if (late) {
    events.push_back({late_at, [&] {
                        for (std::uint64_t b : found_late) rig.add_replica(step, b, late_source);
                      }});
    events.push_back(
        {late_at + 1, [&] { rig.dispatcher().round_ended(step.id, rig.clock.now()); }});
  }
  if (dies >= 0)
    events.push_back({dies_at, [&] {
                        rig.tiers[static_cast<std::size_t>(dies)]->faults.dead = true;
                        rig.dispatcher().set_live(static_cast<SourceId>(dies), false,
                                                  rig.clock.now());
                      }});
  if (cancel_at != kNever)
    events.push_back({cancel_at, [&] {
                        rig.turn();
                        rig.dispatcher().cancel(step.id, rig.clock.now());
                      }});
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  bool moving = true;
  for (const Event& event : events) {
    moving = moving && rig.run([&] { return step.left == 0; }, event.at);
    if (step.left == 0) break;
    rig.clock.set(std::max(rig.clock.now(), event.at));
    event.act();
  }
  moving = moving && rig.run([&] { return step.left == 0; });
  ++tally.runs;
  if (step.left != 0) ++tally.stuck;
  const Nanos last = step.left == 0 ? step.ended : rig.clock.now();
  tally.ratio.push_back(static_cast<double>(last) / least);
  auto log = rig.dispatcher().take_claim_log();
  for (SourceId s = 0; s < n; ++s) {
    const SourceCounters counters = rig.dispatcher().counters(s);
    tally.hedges += counters.hedges;
    tally.overdue += counters.overdue;
    tally.reads += counters.reads;
  }
  tally.slab_waits += rig.dispatcher().counters().waits_for_slab;
  for (std::size_t b = 0; b < masks.size(); ++b) {
    ++tally.blocks;
    const bool hit = step.outcomes[b][0].state == BlockState::kHit;
    tally.hits += hit;
    bool has_sound = false;
    for (std::size_t s = 0; s < n; ++s)
      has_sound = has_sound || ((masks[b] >> s & 1U) != 0 && sound[s]);
    if (has_sound && wish.deadline > static_cast<Nanos>(least * 10) && cancel_at == kNever && !hit)
      ++tally.avoidable;
  }
  if (!rig.drain()) ++tally.undrained;
  const DispatcherCounters closed = rig.dispatcher().counters();
  if (closed.requested != closed.hits + closed.misses + closed.late + closed.cancelled ||
      closed.requested != masks.size())
    ++tally.undrained;
  tally.violations.twice += rig.violations.twice;
  tally.violations.written_after += rig.violations.written_after;
  tally.violations.wrong_bytes += rig.violations.wrong_bytes;
  tally.violations.early += rig.violations.early;
  return log;
}

}  // namespace kvstream::rig
