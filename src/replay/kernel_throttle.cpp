#include "replay/kernel_throttle.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace kvstream {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

/// What stands behind "7:0 " on the device's own line.
std::optional<std::string_view> line_of(std::string_view text, std::string_view device) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with(device) && line.size() > device.size() && line[device.size()] == ' ') {
      return line.substr(device.size() + 1);
    }
  }
  return std::nullopt;
}

std::string blkio_mount() {
  std::ifstream mounts("/proc/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string what, where, kind, options;
    words >> what >> where >> kind >> options;
    if (kind == "cgroup" && ("," + options + ",").find(",blkio,") != std::string::npos)
      return where;
  }
  return "";
}

/// "/path" of the line "0::/path" (v2), or of the line that names blkio (v1).
std::string own_cgroup(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers =
        fmt::format(",{},", std::string_view(line).substr(first + 1, second - first - 1));
    if (controllers.find(fmt::format(",{},", controller)) != std::string::npos) {
      return line.substr(second + 1);
    }
  }
  return "";
}

}  // namespace

std::optional<std::uint64_t> parse_blkio_limit(std::string_view text, std::string_view device) {
  const auto line = line_of(text, device);
  return line ? number_of(*line) : std::nullopt;
}

std::optional<std::uint64_t> parse_io_max_limit(std::string_view text, std::string_view device) {
  const auto line = line_of(text, device);
  if (!line) return std::nullopt;
  const std::size_t at = line->find("rbps=");
  return at == std::string_view::npos ? std::nullopt : number_of(line->substr(at + 5));
}

std::optional<std::uint64_t> kernel_read_limit(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  const std::string device =
      std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  if (const std::string mount = blkio_mount(); !mount.empty()) {
    for (const std::string& group : {own_cgroup("blkio"), std::string()}) {
      const auto limit =
          parse_blkio_limit(text_of(mount + group + "/blkio.throttle.read_bps_device"), device);
      if (limit) return limit;
    }
  }
  return parse_io_max_limit(text_of("/sys/fs/cgroup" + own_cgroup("") + "/io.max"), device);
}

}  // namespace kvstream
