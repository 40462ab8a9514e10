#include "replay/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace kvstream {
namespace {

using nlohmann::json;

/// Writes one event a line. Reads of a source overlap, so they are asynchronous events, which
/// viewers lay out in as many rows as they need below one name.
class TraceWriter {
 public:
  explicit TraceWriter(std::ostream& out) : out_(out) { out_ << "{\"traceEvents\":[\n"; }

  void event(const json& event) {
    if (!first_) out_ << ",\n";
    first_ = false;
    out_ << event.dump();
  }
  void name(const char* what, std::size_t process, std::size_t thread, const std::string& name) {
    event({{"ph", "M"},
           {"name", what},
           {"pid", process},
           {"tid", thread},
           {"args", {{"name", name}}}});
  }
  void span(json begin, double start_us, double end_us) {
    begin["ph"] = "b";
    begin["ts"] = start_us;
    begin["id"] = next_id_++;
    event(begin);
    begin["ph"] = "e";
    begin["ts"] = end_us;
    begin.erase("args");
    event(begin);
  }
  void end() { out_ << "\n],\"displayTimeUnit\":\"ms\"}\n"; }

 private:
  std::ostream& out_;
  bool first_ = true;
  std::uint64_t next_id_ = 1;
};

Nanos first_release(std::span<const TimelineRun> runs) {
  Nanos first = std::numeric_limits<Nanos>::max();
  for (const TimelineRun& run : runs) {
    for (const RankSteps& rank : run.ranks) {
      for (const StepRecord& step : rank.steps) {
        first = std::min(first, step.released_at + rank.clock_offset);
      }
    }
  }
  return first;
}

std::string tier_name(const TimelineRun& run, std::size_t tier) {
  return tier < run.tier_names.size() ? run.tier_names[tier] : fmt::format("tier {}", tier);
}

void write_rank(TraceWriter& writer, const TimelineRun& run, const RankSteps& rank,
                std::size_t process, Nanos origin) {
  writer.name("process_name", process, 0, fmt::format("{} rank {}", run.label, rank.rank));
  writer.name("thread_name", process, 0, "steps");
  for (std::size_t tier = 0; tier < run.tier_names.size(); ++tier) {
    writer.name("thread_name", process, tier + 1, run.tier_names[tier]);
  }
  const auto us = [&](Nanos at) {
    return static_cast<double>(at + rank.clock_offset - origin) * 1e-3;
  };
  for (std::size_t s = 0; s < rank.steps.size(); ++s) {
    const StepRecord& step = rank.steps[s];
    writer.span({{"name", "steps"},
                 {"cat", "step"},
                 {"pid", process},
                 {"tid", 0},
                 {"args", {{"step", s}, {"blocks", step.blocks.size()}}}},
                us(step.released_at), us(step.ended_at));
    for (const StepRecord::Read& read : step.reads) {
      const std::uint32_t bytes =
          read.block < step.blocks.size() ? step.blocks[read.block].size_bytes : 0;
      writer.span({{"name", tier_name(run, read.source)},
                   {"cat", "read"},
                   {"pid", process},
                   {"tid", read.source + 1U},
                   {"args",
                    {{"step", s},
                     {"block", read.block},
                     {"bytes", bytes},
                     {"hedge", read.hedge},
                     {"good", read.good}}}},
                  us(read.submitted_at), us(read.ended_at));
    }
  }
}

}  // namespace

void write_timeline(std::ostream& out, std::span<const TimelineRun> runs) {
  TraceWriter writer(out);
  const Nanos origin = first_release(runs);
  std::size_t process = 1;
  for (const TimelineRun& run : runs) {
    for (const RankSteps& rank : run.ranks) write_rank(writer, run, rank, process++, origin);
  }
  writer.end();
}

Status write_timeline_file(const std::string& path, std::span<const TimelineRun> runs) {
  std::ofstream out(path, std::ios::trunc);
  if (out) write_timeline(out, runs);
  out.flush();
  if (out) return Status::ok();
  return {Code::kIoError, fmt::format("failed to write the timeline to {} ({}); give --timeline a "
                                      "file in a directory that can be written",
                                      path, std::strerror(errno))};
}

}  // namespace kvstream
