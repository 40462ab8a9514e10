// T*: the least time in which given devices can move given bytes. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvstream/status.hpp"

namespace kvstream {

/// The most devices and links one bound may name: source sets are masks.
inline constexpr std::size_t kBoundDevicesMax = 64;
inline constexpr std::uint32_t kNoLink = UINT32_MAX;

/// A physical device: a drive, a PFS mount, a NIC, host memory. Not a tier of a rank: ranks that
/// share a drive share it here.
struct BoundDevice {
  double rate_bytes_per_s = 0;
  double credit_bytes = 0;       ///< free bytes after an idle gap (a throttle's burst)
  std::uint32_t link = kNoLink;  ///< index of a link that all its bytes cross
};

/// What several devices share, e.g. the NIC in front of two mounts.
struct BoundLink {
  double rate_bytes_per_s = 0;
};

/// Bytes that each device in the mask `devices` could give, and none before `release_s`.
struct BoundGroup {
  std::uint64_t devices = 0;
  double release_s = 0;
  double bytes = 0;
};

struct BoundProblem {
  std::vector<BoundDevice> devices;
  std::vector<BoundLink> links;
  std::vector<BoundGroup> groups;
};

/// The least T (seconds on the groups' own axis, so subtract the first release to get a duration)
/// for which a max-flow carries all bytes from the groups to nodes (device, interval between
/// releases) of capacity rate x length, and on through links of their own capacity. Exact up to
/// rounding: each step of the search (Dinkelbach's, over min cuts) ends in the T of one real cut.
/// A device's credit counts once, towards its last interval, which is what a token bucket that was
/// full allows in any window that ends at T. 0 when there are no bytes.
/// Errors: a group without a device that can serve it, a rate <= 0, more than kBoundDevicesMax.
Result<double> least_time_s(const BoundProblem& problem);

}  // namespace kvstream
