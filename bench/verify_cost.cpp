// What does verification cost: wall time of placing blocks that arrive at 2 GB/s a core, with and
// without it (bar: <= 1.05x), and CPU seconds a GB beside bare XXH3 and bare memcpy?
// Usage: verify_cost [--check]   one JSON row a block size; with --check exit code 1 above the bar
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "core/checksum.hpp"
#include "engine/copy_threads.hpp"
#include "kvstream/clock.hpp"

namespace kvstream {
namespace {

constexpr double kArrivalBytesPerNs = 2.0;
constexpr std::size_t kMemoryBytes = 512U << 20U;  // beyond any cache
constexpr std::uint64_t kRunBytes = 4ULL << 30U;
constexpr int kPairs = 5;
constexpr double kWallRatioMax = 1.05;

Nanos now_ns() { return SteadyClock::instance().now(); }
double cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

enum class Verifier { kReal, kNull };

struct Blocks {
  std::uint32_t size_bytes;
  std::vector<std::byte> from = std::vector<std::byte>(kMemoryBytes);
  std::vector<std::byte> into = std::vector<std::byte>(kMemoryBytes);
  std::vector<std::uint64_t> sums;
  std::vector<Span> spans;

  explicit Blocks(std::uint32_t size) : size_bytes(size) {
    for (std::size_t i = 0; i < from.size(); i += 8) {
      const std::uint64_t word = i * 0x9E3779B97F4A7C15ULL;
      std::memcpy(from.data() + i, &word, sizeof word);
    }
    for (std::size_t at = 0; at + size <= from.size(); at += size) {
      sums.push_back(checksum({from.data() + at, size}));
      spans.push_back({into.data() + at, size});
    }
  }
};

struct Cost {
  double wall_s = 0, copy_cpu_s = 0;
  bool good = true;
};

/// Blocks become due at the arrival rate; the wall time ends when the last one is placed. The
/// submitting thread sleeps while nothing is due, as a progress thread does.
Cost run(const Blocks& blocks, Verifier verifier) {
  const EventFd wake;
  CopyThreads threads(1, 256, wake);
  const std::uint64_t count = kRunBytes / blocks.size_bytes;
  std::array<PlaceDone, 64> done;
  Cost cost;
  const Nanos began = now_ns();
  const Nanos give_up = began + 60 * kSecond;
  std::uint64_t submitted = 0, placed = 0;
  while (placed < count && now_ns() < give_up) {
    const auto due = static_cast<std::uint64_t>(static_cast<double>(now_ns() - began) *
                                                kArrivalBytesPerNs / blocks.size_bytes);
    while (submitted < std::min(due, count)) {
      const std::size_t at = submitted % blocks.spans.size();
      const PlaceJob job{submitted,
                         blocks.from.data() + at * blocks.size_bytes,
                         blocks.size_bytes,
                         blocks.sums[at],
                         verifier == Verifier::kReal,
                         1,
                         {&blocks.spans[at], 1}};
      if (!threads.submit(job)) break;
      ++submitted;
    }
    const std::size_t ended = threads.poll(done);
    for (std::size_t i = 0; i < ended; ++i) cost.good = cost.good && done[i].good;
    placed += ended;
    if (ended == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  cost.wall_s = static_cast<double>(now_ns() - began) * 1e-9;
  cost.copy_cpu_s = threads.cpu_s();
  cost.good = cost.good && placed == count;
  return cost;
}

/// CPU seconds a GB of doing `one` to every block once.
template <class F>
double bare_cpu_s_per_gb(const Blocks& blocks, F one) {
  const double began = cpu_s();
  for (std::size_t i = 0; i < blocks.spans.size(); ++i) one(i);
  const double bytes = static_cast<double>(blocks.spans.size()) * blocks.size_bytes;
  return (cpu_s() - began) / (bytes * 1e-9);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

bool run_case(std::uint32_t size_bytes) {
  const Blocks blocks(size_bytes);
  std::uint64_t mixed = 0;
  const double xxh3 = bare_cpu_s_per_gb(blocks, [&](std::size_t i) {
    mixed ^= checksum({blocks.from.data() + i * size_bytes, size_bytes});
  });
  const double copy = bare_cpu_s_per_gb(blocks, [&](std::size_t i) {
    std::memcpy(blocks.spans[i].data, blocks.from.data() + i * size_bytes, size_bytes);
  });
  std::vector<double> ratios, real_cpu, null_cpu;
  bool good = true;
  for (int pair = 0; pair < kPairs; ++pair) {
    const Cost without = run(blocks, Verifier::kNull), with = run(blocks, Verifier::kReal);
    good = good && with.good && without.good;
    ratios.push_back(with.wall_s / without.wall_s);
    real_cpu.push_back(with.copy_cpu_s / (static_cast<double>(kRunBytes) * 1e-9));
    null_cpu.push_back(without.copy_cpu_s / (static_cast<double>(kRunBytes) * 1e-9));
  }
  std::printf(
      "{\"bench\": \"verify_cost\", \"block_bytes\": %u, \"pairs\": %d, "
      "\"wall_ratio\": %.4f, \"verified_cpu_s_per_gb\": %.4f, "
      "\"unverified_cpu_s_per_gb\": %.4f, \"bare_xxh3_cpu_s_per_gb\": %.4f, "
      "\"bare_memcpy_cpu_s_per_gb\": %.4f, \"good\": %s, \"mix\": %llu}\n",
      size_bytes, kPairs, median(ratios), median(real_cpu), median(null_cpu), xxh3, copy,
      good ? "true" : "false", static_cast<unsigned long long>(mixed & 1));
  return good && median(ratios) <= kWallRatioMax;
}

}  // namespace
}  // namespace kvstream

int main(int argc, char** argv) {
  const bool check = argc > 1 && std::string_view(argv[1]) == "--check";
  bool good = true;
  for (const std::uint32_t size : {256U << 10U, 1U << 20U, 8U << 20U}) {
    good &= kvstream::run_case(size);
  }
  return check && !good ? 1 : 0;
}
