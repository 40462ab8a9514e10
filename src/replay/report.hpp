// A run as a table for people. (As JSON: rank_report.hpp, comparison.hpp.)
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "replay/comparison.hpp"

namespace kvstream {

/// What the table says above its columns.
struct TableHead {
  std::string trace;
  double time_scale = 1, bytes_scale = 1;
  std::vector<ReplayTier> tiers;
  std::string temperature;         ///< "warm: ..." or "cold: ..."
  std::vector<std::string> about;  ///< further lines: the engine's model
  enum class Speeds : std::uint8_t { kReal, kModelled } speeds = Speeds::kReal;
};

/// One column a side (means over its pairs), the ratios beside their ceilings below, remarks last.
std::string format_table(const TableHead& head, std::span<const SideRuns> sides,
                         std::span<const Comparison> comparisons);

}  // namespace kvstream
