// What a run cost the machine: CPU seconds, memory at its peak, time stolen by the hypervisor.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvstream {

/// Of this process, all threads, user and system.
double process_cpu_s();
/// Of the calling thread.
double thread_cpu_s();

struct ProcessMemory {
  std::uint64_t peak_rss_bytes = 0;  ///< VmHWM: shared pages that were touched are part of it
  std::uint64_t shm_bytes = 0;       ///< RssShmem now: arenas, memfds
};
ProcessMemory parse_process_status(std::string_view proc_self_status);
ProcessMemory read_process_memory();

/// Keeps the greatest shared memory seen; one thread.
class MemoryPeaks {
 public:
  void sample();
  std::uint64_t peak_rss_bytes() const { return peak_rss_bytes_; }
  std::uint64_t peak_shm_bytes() const { return peak_shm_bytes_; }

 private:
  std::uint64_t peak_rss_bytes_ = 0, peak_shm_bytes_ = 0;
};

/// Clock ticks of the machine since it started.
struct CpuTicks {
  std::uint64_t all = 0, idle = 0, steal = 0;
};
std::optional<CpuTicks> parse_cpu_ticks(std::string_view proc_stat);
std::optional<CpuTicks> read_cpu_ticks();
/// Part of the time between the two that the hypervisor took away; > 0.03 marks a run.
double steal_share(const CpuTicks& before, const CpuTicks& after);
inline constexpr double kStealShareMax = 0.03;

}  // namespace kvstream
