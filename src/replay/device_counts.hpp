// A block device's own count of what it moved (/sys/block/*/stat).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvstream {

struct DeviceCounts {
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t reads = 0, writes = 0;
};

/// The stat file of the drive, partition or loop device that holds `path` (by st_dev); none where
/// there is no such device: overlayfs, tmpfs, network file systems.
std::optional<std::string> device_stat_file(const std::string& path);
/// The text of a stat file: its sectors are 512 bytes, whatever the device's are.
std::optional<DeviceCounts> parse_device_stat(std::string_view text);
std::optional<DeviceCounts> read_device_counts(const std::string& stat_file);

}  // namespace kvstream
