// A block device that nothing else uses, for tests that hold a tier to the device's own count.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kvstream/status.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {

/// A fresh ext4 on a loop device over a file under TMPDIR. Mounted in a mount namespace of this
/// process alone and detached by itself with the mount, so that nothing of it outlives the process,
/// however that ends.
class OwnDevice {
 public:
  /// kUnavailable, with the reason, where that is not allowed: skip the test.
  static Result<std::unique_ptr<OwnDevice>> open(std::uint64_t size_bytes);
  ~OwnDevice();
  OwnDevice(const OwnDevice&) = delete;
  OwnDevice& operator=(const OwnDevice&) = delete;

  const std::string& path() const { return mount_point_; }
  /// What the device has read so far, by its own count.
  std::uint64_t read_bytes() const;

 private:
  OwnDevice() = default;
  Status make(std::uint64_t size_bytes);

  TempDirectory directory_;
  std::string mount_point_, stat_file_;
  bool mounted_ = false;
};

}  // namespace kvstream::test
