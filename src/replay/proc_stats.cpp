#include "replay/proc_stats.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace kvstream {
namespace {

std::string read_text(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

double seconds_of(clockid_t clock) {
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// "VmHWM:     1234 kB" -> bytes.
std::uint64_t find_kib(std::string_view text, std::string_view label) {
  std::size_t at = text.find(label);
  if (at == std::string_view::npos) return 0;
  at = text.find_first_of("0123456789", at + label.size());
  if (at == std::string_view::npos) return 0;
  std::uint64_t kib = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), kib);
  return kib * 1024;
}

}  // namespace

double process_cpu_s() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }
double thread_cpu_s() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

ProcessMemory parse_process_status(std::string_view proc_self_status) {
  return {find_kib(proc_self_status, "VmHWM:"), find_kib(proc_self_status, "RssShmem:")};
}

ProcessMemory read_process_memory() { return parse_process_status(read_text("/proc/self/status")); }

void MemoryPeaks::sample() {
  const ProcessMemory memory = read_process_memory();
  peak_rss_bytes_ = std::max(peak_rss_bytes_, memory.peak_rss_bytes);
  peak_shm_bytes_ = std::max(peak_shm_bytes_, memory.shm_bytes);
}

std::optional<CpuTicks> parse_cpu_ticks(std::string_view proc_stat) {
  std::istringstream in{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string label;
  // user nice system idle iowait irq softirq steal; guest time is part of user already.
  std::array<std::uint64_t, 8> ticks{};
  if (!(in >> label) || label != "cpu") return std::nullopt;
  for (std::uint64_t& value : ticks) {
    if (!(in >> value)) return std::nullopt;
  }
  CpuTicks result;
  for (const std::uint64_t value : ticks) result.all += value;
  result.idle = ticks[3] + ticks[4];
  result.steal = ticks[7];
  return result;
}

std::optional<CpuTicks> read_cpu_ticks() { return parse_cpu_ticks(read_text("/proc/stat")); }

double steal_share(const CpuTicks& before, const CpuTicks& after) {
  if (after.all <= before.all || after.steal < before.steal) return 0;
  return static_cast<double>(after.steal - before.steal) /
         static_cast<double>(after.all - before.all);
}

}  // namespace kvstream
