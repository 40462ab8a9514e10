// Whether the kernel holds a device to a speed (cgroups), which gives free credit after each gap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvstream/clock.hpp"

namespace kvstream {

/// The kernel throttles in slices of 100 ms: after an idle gap about one slice costs nothing.
inline constexpr Nanos kKernelSliceNs = 100 * kMillisecond;

/// Of "blkio.throttle.read_bps_device" (cgroup v1): the limit of device "7:0", if it has one.
std::optional<std::uint64_t> parse_blkio_limit(std::string_view text, std::string_view device);
/// Of "io.max" (cgroup v2).
std::optional<std::uint64_t> parse_io_max_limit(std::string_view text, std::string_view device);

/// The read limit of the drive that holds `path`, for this process.
std::optional<std::uint64_t> kernel_read_limit(const std::string& path);

}  // namespace kvstream
