#include "tiers/own_device.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace kvstream::test {
namespace {

constexpr std::uint64_t kSectorBytes = 512;

Status unavailable(const std::string& what) {
  return {Code::kUnavailable, what + " (" + std::strerror(errno) + ")"};
}

Status run(const std::string& command) {
  if (std::system((command + " >/dev/null 2>&1 </dev/null").c_str()) == 0) return Status::ok();
  return {Code::kUnavailable, "failed: " + command};
}

}  // namespace

Result<std::unique_ptr<OwnDevice>> OwnDevice::open(std::uint64_t size_bytes) {
  std::unique_ptr<OwnDevice> device(new OwnDevice);
  if (Status status = device->make(size_bytes); !status.is_ok()) return failure(status);
  return device;
}

Status OwnDevice::make(std::uint64_t size_bytes) {
  if (::geteuid() != 0) return {Code::kUnavailable, "a loop device needs root"};
  if (::unshare(CLONE_NEWNS) != 0) return unavailable("no mount namespace of its own");
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return unavailable("mounts cannot be made private");
  }
  const std::string image = directory_.path() + "/image";
  const int fd = ::open(image.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return unavailable("no image in " + directory_.path());
  const bool sized = ::ftruncate(fd, static_cast<off_t>(size_bytes)) == 0;
  ::close(fd);
  if (!sized) return unavailable("no room for the image");
  if (Status status =
          run("mkfs.ext4 -q -F -m 0 -E lazy_itable_init=0,lazy_journal_init=0 '" + image + "'");
      !status.is_ok()) {
    return status;
  }
  mount_point_ = directory_.path() + "/mnt";
  if (::mkdir(mount_point_.c_str(), 0700) != 0) return unavailable("no mount point");
  // mount makes the loop device itself, and it goes with the mount.
  if (Status status = run("mount -o loop,noatime '" + image + "' '" + mount_point_ + "'");
      !status.is_ok()) {
    return status;
  }
  mounted_ = true;
  struct stat info {};
  if (::stat(mount_point_.c_str(), &info) != 0) return unavailable("no mount");
  stat_file_ = "/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" +
               std::to_string(minor(info.st_dev)) + "/stat";
  if (::access(stat_file_.c_str(), R_OK) != 0) return unavailable("no " + stat_file_);
  return Status::ok();
}

OwnDevice::~OwnDevice() {
  if (mounted_) ::umount2(mount_point_.c_str(), MNT_DETACH);
}

std::uint64_t OwnDevice::read_bytes() const {
  std::ifstream in(stat_file_);
  std::uint64_t reads = 0, merged = 0, sectors = 0;
  in >> reads >> merged >> sectors;
  EXPECT_TRUE(in) << "failed to read " << stat_file_;
  return sectors * kSectorBytes;
}

}  // namespace kvstream::test
