#include "memory/memory_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr int kGroupDepthMax = 64;

// How one version of control groups is mounted and named.
struct GroupVersion {
  const char *mount_type, *controller;  ///< controller "" = one tree for all
  const char *limit, *usage, *inactive, *active;
};
constexpr GroupVersion kVersion1 = {"cgroup",
                                    "memory",
                                    "memory.limit_in_bytes",
                                    "memory.usage_in_bytes",
                                    "total_inactive_file",
                                    "total_active_file"};
constexpr GroupVersion kVersion2 = {"cgroup2",       "",           "memory.max", "memory.current",
                                    "inactive_file", "active_file"};

struct Mount {
  std::string root, point;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(file, line)) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  std::string word;
  while (stream >> word) words.push_back(word);
  return words;
}

// A file with one number; "max" and what is not there are no limit.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return {};
}

// "name 123" or "name: 123 kB" among lines; the number as it stands there.
std::uint64_t statistic(const std::vector<std::string>& lines, std::string_view name) {
  for (const std::string& line : lines) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 2 || words[0] != name) continue;
    std::uint64_t value = 0;
    std::from_chars(words[1].data(), words[1].data() + words[1].size(), value);
    return value;
  }
  return 0;
}

// "a,memory,b" has "memory"; "" is asked of everything.
bool lists(std::string_view list, std::string_view wanted) {
  if (wanted.empty()) return true;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == wanted) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Where the memory controller (version 1), or the one tree (version 2), is mounted.
std::optional<Mount> find_mount(const std::string& root, const GroupVersion& version) {
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    if (dash[1] == version.mount_type && lists(dash[3], version.controller)) {
      return Mount{words[3], words[4]};
    }
  }
  return {};
}

// This process's group of one version, as /proc/self/cgroup names it.
std::optional<std::string> own_group(const std::string& root, const GroupVersion& version) {
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool one_tree = *version.controller == 0;
    if (one_tree ? controllers.empty() : lists(controllers, version.controller)) {
      return line.substr(second + 1);
    }
  }
  return {};
}

// What one group's limit leaves. Page cache that it is charged for can be had back: the inactive
// part, and half of the active one (taking all of that would make everyone read again).
std::uint64_t left_in_group(const std::string& directory, const GroupVersion& files) {
  const std::optional<std::uint64_t> limit = number_in(directory + "/" + files.limit);
  const std::optional<std::uint64_t> usage = number_in(directory + "/" + files.usage);
  if (!limit || !usage) return kUnlimited;
  const std::vector<std::string> lines = lines_of(directory + "/memory.stat");
  const std::uint64_t cache = statistic(lines, files.inactive) + statistic(lines, files.active) / 2;
  const std::uint64_t held = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, held);
}

// Every group from this process's up to the mount point limits.
void apply_groups(const std::string& root, const GroupVersion& version, MemoryBudget& budget) {
  const std::optional<Mount> mount = find_mount(root, version);
  const std::optional<std::string> group = own_group(root, version);
  if (!mount || !group) return;
  std::string path = *group;
  // A container mounts its own group as the root, yet may see the path from outside.
  if (mount->root != "/" && path.starts_with(mount->root)) path.erase(0, mount->root.size());
  if (path.starts_with("/..")) path.clear();
  for (int depth = 0; depth < kGroupDepthMax; ++depth) {
    while (path.ends_with('/')) path.pop_back();
    const std::string directory = mount->point + path;
    const std::uint64_t left = left_in_group(root + directory, version);
    if (left < budget.available_bytes) budget = {left, directory};
    if (path.empty()) return;
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

MemoryBudget memory_budget(const std::string& root) {
  MemoryBudget budget{kUnlimited, "nothing"};
  const std::uint64_t kib = statistic(lines_of(root + "/proc/meminfo"), "MemAvailable:");
  if (kib > 0) budget = {kib * 1024, "MemAvailable"};
  apply_groups(root, kVersion1, budget);
  apply_groups(root, kVersion2, budget);
  return budget;
}

std::uint64_t memory_available_bytes() { return memory_budget().available_bytes; }

Status check_memory(std::uint64_t bytes, const char* what) {
  const MemoryBudget budget = memory_budget();
  if (bytes <= budget.available_bytes && budget.available_bytes - bytes >= kMemoryKeptFreeBytes) {
    return Status::ok();
  }
  return {
      Code::kNoSpace,
      fmt::format("failed to take {} B ({}) of memory for {}: {} are left ({}), {} of them stay "
                  "free; ask for less",
                  bytes, format_size(bytes), what, format_size(budget.available_bytes),
                  budget.limited_by, format_size(kMemoryKeptFreeBytes))};
}

}  // namespace kvstream
