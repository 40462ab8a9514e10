#include "replay/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/units.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

constexpr std::size_t kNameWidth = 30;

struct Row {
  std::string name;
  std::function<std::string(const SideRuns&)> cell;
};

double mean_of(const SideRuns& side, const std::string& at) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& run : side.runs) {
    const json::json_pointer pointer(at);
    if (!run.contains(pointer) || !run.at(pointer).is_number()) continue;
    sum += run.at(pointer).get<double>();
    ++count;
  }
  return count ? sum / static_cast<double>(count) : 0;
}

bool has(const SideRuns& side, const std::string& at) {
  const json::json_pointer pointer(at);
  return std::any_of(side.runs.begin(), side.runs.end(), [&](const json& run) {
    return run.contains(pointer) && run.at(pointer).is_number();
  });
}

Row figure(std::string name, std::string at, std::string form, double factor = 1) {
  return {std::move(name), [=](const SideRuns& side) {
            if (!has(side, at)) return std::string("-");
            return fmt::format(fmt::runtime(form), factor * mean_of(side, at));
          }};
}

std::vector<Row> rows_of(const TableHead& head, std::span<const SideRuns> sides) {
  std::vector<Row> rows{figure("tokens/s", "/throughput_tokens_per_s", "{:.0f}"),
                        figure("TTFT mean, ms", "/ttft_s/mean", "{:.1f}", 1e3),
                        figure("TTFT p99, ms", "/ttft_s/p99", "{:.1f}", 1e3),
                        figure("TPOT mean, ms", "/tpot_s/mean", "{:.2f}", 1e3),
                        figure("step read mean, ms", "/step_read_s/mean", "{:.2f}", 1e3),
                        figure("step read p99, ms", "/step_read_s/p99", "{:.2f}", 1e3),
                        figure("waiting for reads, %", "/io_share", "{:.1f}", 100),
                        figure("waiting for writes, %", "/write_wait_share", "{:.1f}", 100),
                        figure("readers busy, %", "/read_busy_share", "{:.1f}", 100),
                        figure("blocks hit, %", "/blocks/hit_ratio", "{:.1f}", 100)};
  for (const auto& tier : head.tiers) {
    rows.push_back(figure("read from " + tier.spec.name + ", MB", "/bytes/read/" + tier.spec.name,
                          "{:.1f}", 1e-6));
    rows.push_back(figure("written to " + tier.spec.name + ", MB",
                          "/bytes/written/" + tier.spec.name, "{:.1f}", 1e-6));
  }
  rows.push_back(figure("writes dropped", "/writes/dropped", "{:.0f}"));
  for (const Row& row : {figure("cached on the device, tokens", "/tokens/cached_device", "{:.0f}"),
                         figure("preemptions", "/preemptions", "{:.0f}"),
                         figure("requests refused", "/rejected", "{:.0f}")}) {
    const bool any = std::any_of(sides.begin(), sides.end(),
                                 [&](const SideRuns& side) { return row.cell(side) != "0"; });
    if (any) rows.push_back(row);
  }
  rows.push_back(figure("efficiency T*/T", "/bound/efficiency", "{:.3f}"));
  const bool counted = std::any_of(sides.begin(), sides.end(),
                                   [](const SideRuns& s) { return has(s, "/bound/efficiency"); });
  if (!counted) {
    rows.push_back(figure("work share (no period counts)", "/bound/others/work_share", "{:.3f}"));
  }
  rows.push_back(figure("wrong bytes", "/checks/wrong_bytes", "{:.0f}"));
  rows.push_back({"accounts closed", [](const SideRuns& side) {
                    const bool all =
                        std::all_of(side.runs.begin(), side.runs.end(), [](const json& run) {
                          return run.at("checks").at("accounts_closed").get<bool>();
                        });
                    return std::string(all ? "yes" : "NO");
                  }});
  return rows;
}

std::string head_of(const TableHead& head) {
  const double rate_scale = head.time_scale / head.bytes_scale;
  std::string text = fmt::format(
      "trace      {}\nscale      bytes x {:.6g}, time x {:.6g}: 1 MB/s here stands for {}\n",
      head.trace, head.bytes_scale, head.time_scale, format_rate(1e6 * rate_scale));
  for (const auto& line : head.about) text += line + "\n";
  for (const auto& tier : head.tiers) {
    const auto& throttle = tier.spec.throttle;
    std::string speed = "at its own speed";
    if (throttle.any()) {
      speed = fmt::format(
          "{}: read {}, write {}, latency {}",
          head.speeds == TableHead::Speeds::kModelled ? "modelled" : "throttled",
          throttle.read_bytes_per_s ? format_rate(static_cast<double>(throttle.read_bytes_per_s))
                                    : "unlimited",
          throttle.write_bytes_per_s ? format_rate(static_cast<double>(throttle.write_bytes_per_s))
                                     : "unlimited",
          format_duration(throttle.latency_ns));
      if (throttle.read_bytes_per_s != 0 && rate_scale != 1) {
        speed +=
            fmt::format(" (represents {} and {})",
                        format_rate(rate_scale * static_cast<double>(throttle.read_bytes_per_s)),
                        format_rate(rate_scale * static_cast<double>(throttle.write_bytes_per_s)));
      }
    }
    text += fmt::format("tier       {} ({}), cap {}, {}\n", tier.spec.name, tier.spec.kind,
                        format_size(tier.spec.cap_bytes), speed);
  }
  return text + "store      " + head.temperature + "\n";
}

std::string comparison_line(const Comparison& line) {
  std::string text =
      fmt::format("  {} / {}: {} {:.3f}x", line.side, line.rival, line.measure, line.ratio.ratio);
  if (line.ratio.low && line.ratio.high) {
    text += fmt::format(" [{:.3f}, {:.3f}]", *line.ratio.low, *line.ratio.high);
  }
  if (line.ceiling) {
    text += fmt::format(", ceiling {:.3f} ({:.0f} % of it; {})", *line.ceiling,
                        100 * line.ratio.ratio / *line.ceiling, line.ceiling_formula);
  }
  return text + (line.note.empty() ? "\n" : "  -- " + line.note + "\n");
}

}  // namespace

std::string format_table(const TableHead& head, std::span<const SideRuns> sides,
                         std::span<const Comparison> comparisons) {
  std::string text = head_of(head) + "\n";
  std::vector<std::size_t> widths;
  text += std::string(kNameWidth, ' ');
  for (const auto& side : sides) {
    widths.push_back(std::max<std::size_t>(12, side.side.name.size() + 2));
    text += fmt::format("{:>{}}", side.side.name, widths.back());
  }
  text += "\n";
  for (const auto& row : rows_of(head, sides)) {
    // A figure that no side has (time per token of an engine that answers whole) is left out.
    const bool any = std::any_of(sides.begin(), sides.end(),
                                 [&](const SideRuns& side) { return row.cell(side) != "-"; });
    if (!any) continue;
    text += fmt::format("{:<{}}", row.name, kNameWidth);
    for (std::size_t i = 0; i < sides.size(); ++i) {
      text += fmt::format("{:>{}}", row.cell(sides[i]), widths[i]);
    }
    text += "\n";
  }
  if (!comparisons.empty()) {
    text += fmt::format(
        "\nratios over {} pair(s), above 1 is better for the first; 95 % interval in brackets\n",
        comparisons.front().ratio.pairs);
    for (const auto& line : comparisons) text += comparison_line(line);
  }
  const bool busy = std::any_of(sides.begin(), sides.end(), [](const SideRuns& side) {
    return !has(side, "/read_busy_share") || mean_of(side, "/read_busy_share") >= 0.3;
  });
  if (!busy && !sides.empty()) {
    text +=
        "\nThe readers were busy for less than 30 % of every side: this run says little about "
        "reads.\n";
  }
  return text;
}

}  // namespace kvstream
