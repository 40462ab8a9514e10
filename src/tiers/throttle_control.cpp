#include "tiers/throttle_control.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace kvstream {

/// Lies in the file; processes of one build share it, and a new first opener writes it anew.
struct ThrottleControl::Shared {
  struct Bucket {
    /// "Theoretical arrival time": when all that was taken will have passed at the rate.
    std::atomic<Nanos> tat{std::numeric_limits<Nanos>::min() / 2};
    std::atomic<std::uint64_t> rate_bytes_per_s{0};
  };
  std::array<Bucket, 2> buckets;
  std::atomic<std::uint32_t> bypass{0};

  Bucket& bucket(Direction direction) { return buckets[static_cast<std::size_t>(direction)]; }
};

namespace {

constexpr std::size_t kFileBytes = 4096;
constexpr int kLockTriesMax = 5000;  ///< a millisecond each

static_assert(std::atomic<Nanos>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

Status io_error(const char* verb, const std::string& path) {
  return {Code::kIoError,
          fmt::format("failed to {} {} ({}); a throttled tier keeps its state there", verb, path,
                      std::strerror(errno))};
}

enum class Role : std::uint8_t { kFirst, kLater };

/// The exclusive lock is had by the first opener only, and nobody's open() returns before it is
/// given up: so nothing that was set after an open() can be set up anew by another.
Result<Role> lock_first_or_shared(int fd, const std::string& path) {
  for (int i = 0; i < kLockTriesMax; ++i) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return Role::kFirst;
    if (::flock(fd, LOCK_SH | LOCK_NB) == 0) return Role::kLater;
    if (errno != EWOULDBLOCK && errno != EINTR) return failure(io_error("lock", path));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return failure(Code::kTimedOut, fmt::format("failed to lock {} within 5 s; another process has "
                                              "been setting it up for that long",
                                              path));
}

Status downgrade(int fd, const std::string& path) {
  for (int i = 0; i < kLockTriesMax; ++i) {
    if (::flock(fd, LOCK_SH | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK && errno != EINTR) return io_error("lock", path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {Code::kTimedOut, fmt::format("failed to lock {} within 5 s", path)};
}

/// Written, not only made longer: a mapped hole kills the process when the disk is full.
Status allocate(int fd, const std::string& path) {
  const std::array<std::byte, kFileBytes> zeros{};
  const auto written = ::pwrite(fd, zeros.data(), zeros.size(), 0);
  if (written == static_cast<ssize_t>(zeros.size())) return {};
  if (written >= 0) errno = ENOSPC;
  return io_error("write", path);
}

Result<void*> map(int fd, const std::string& path) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) return failure(io_error("map", path));
  return memory;
}

/// Opens and locks the file, in the role that it returns.
Result<Role> prepare(int fd, const std::string& path) {
  auto role = lock_first_or_shared(fd, path);
  if (!role) return role;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return failure(io_error("look at", path));
  if (*role == Role::kFirst) {
    if (auto status = allocate(fd, path); !status.is_ok()) return failure(status);
  } else if (info.st_size < static_cast<off_t>(kFileBytes)) {
    return failure(Code::kIoError,
                   fmt::format("failed to use {} ({} B instead of {}); its first opener could not "
                               "set it up",
                               path, info.st_size, kFileBytes));
  }
  return role;
}

}  // namespace

Result<std::shared_ptr<ThrottleControl>> ThrottleControl::open(const std::string& root,
                                                               const ThrottleSpec& spec) {
  static_assert(sizeof(Shared) <= kFileBytes);
  int fd = -1;
  std::string path = "anonymous memory";
  Role role = Role::kFirst;
  if (!root.empty()) {
    std::error_code error;
    std::filesystem::create_directories(root, error);
    if (error) {
      return failure(Code::kIoError,
                     fmt::format("failed to make directory {} ({}); name one that can be written",
                                 root, error.message()));
    }
    path = root + "/" + kFileName;
    fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return failure(io_error("open", path));
    const auto prepared = prepare(fd, path);
    if (!prepared) {
      ::close(fd);
      return failure(prepared.error());
    }
    role = *prepared;
  }
  const auto memory = map(fd, path);
  if (!memory) {
    if (fd >= 0) ::close(fd);
    return failure(memory.error());
  }
  Shared* shared = role == Role::kFirst ? new (*memory) Shared : static_cast<Shared*>(*memory);
  std::shared_ptr<ThrottleControl> control(new ThrottleControl(spec, shared, fd));
  if (role == Role::kFirst) {
    control->set_rates(control->rates_at_open());
    if (fd >= 0) {
      if (auto status = downgrade(fd, path); !status.is_ok()) return failure(status);
    }
  }
  return control;
}

ThrottleControl::ThrottleControl(const ThrottleSpec& spec, Shared* shared, int fd)
    : shared_(shared),
      fd_(fd),
      rates_at_open_{spec.read_bytes_per_s, spec.write_bytes_per_s},
      latency_ns_(spec.latency_ns) {}

ThrottleControl::~ThrottleControl() {
  ::munmap(shared_, kFileBytes);
  if (fd_ >= 0) ::close(fd_);
}

void ThrottleControl::set_rates(Rates rates) {
  shared_->bucket(Direction::kRead).rate_bytes_per_s.store(rates.read_bytes_per_s);
  shared_->bucket(Direction::kWrite).rate_bytes_per_s.store(rates.write_bytes_per_s);
}

ThrottleControl::Rates ThrottleControl::rates() const {
  return {shared_->bucket(Direction::kRead).rate_bytes_per_s.load(),
          shared_->bucket(Direction::kWrite).rate_bytes_per_s.load()};
}

void ThrottleControl::bypass(Bypass bypass) {
  shared_->bypass.store(bypass == Bypass::kOn ? 1 : 0);
}

Bypass ThrottleControl::bypass() const {
  return shared_->bypass.load() != 0 ? Bypass::kOn : Bypass::kOff;
}

std::uint64_t ThrottleControl::burst_bytes(Direction direction) const {
  const std::uint64_t rate = shared_->bucket(direction).rate_bytes_per_s.load();
  return static_cast<std::uint64_t>(static_cast<double>(rate) * (kBurstNs / 1e9));
}

Nanos ThrottleControl::reserve(Direction direction, std::uint32_t size_bytes, Nanos now) {
  auto& bucket = shared_->bucket(direction);
  const std::uint64_t rate = bucket.rate_bytes_per_s.load(std::memory_order_relaxed);
  if (rate == 0 || bypass() == Bypass::kOn) return now;
  // 4 GiB x 1e9 fits into 64 bits.
  const auto cost = static_cast<Nanos>(std::uint64_t{size_bytes} * kSecond / rate);
  Nanos tat = bucket.tat.load();
  Nanos end = 0;
  do {
    end = std::max(tat, now - kBurstNs) + cost;
  } while (!bucket.tat.compare_exchange_weak(tat, end));
  return std::max(end, now);
}

}  // namespace kvstream
