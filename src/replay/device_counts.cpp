#include "replay/device_counts.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace kvstream {
namespace {

constexpr std::uint64_t kSectorBytes = 512;

}  // namespace

std::optional<std::string> device_stat_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  const dev_t device = S_ISBLK(info.st_mode) ? info.st_rdev : info.st_dev;
  // Major 0 is no device: tmpfs, overlayfs, btrfs, network file systems.
  if (major(device) == 0) return std::nullopt;
  std::string file = fmt::format("/sys/dev/block/{}:{}/stat", major(device), minor(device));
  if (::access(file.c_str(), R_OK) != 0) return std::nullopt;
  return file;
}

std::optional<DeviceCounts> parse_device_stat(std::string_view text) {
  std::istringstream in{std::string(text)};
  // reads, merged, sectors, ms; the same of writes.
  std::array<std::uint64_t, 8> field{};
  for (std::uint64_t& value : field) {
    if (!(in >> value)) return std::nullopt;
  }
  DeviceCounts counts;
  counts.reads = field[0];
  counts.read_bytes = field[2] * kSectorBytes;
  counts.writes = field[4];
  counts.written_bytes = field[6] * kSectorBytes;
  return counts;
}

std::optional<DeviceCounts> read_device_counts(const std::string& stat_file) {
  std::ifstream in(stat_file);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return parse_device_stat(line);
}

}  // namespace kvstream
