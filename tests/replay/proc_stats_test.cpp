#include "replay/proc_stats.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "replay/device_counts.hpp"

namespace kvstream {
namespace {

TEST(ProcStats, ReadsPeakAndSharedMemoryOutOfTheStatusText) {
  const ProcessMemory memory = parse_process_status(
      "Name:\tx\nVmHWM:\t    1234 kB\nRssAnon:\t 7 kB\nRssShmem:\t      56 kB\n");
  EXPECT_EQ(memory.peak_rss_bytes, 1234u * 1024);
  EXPECT_EQ(memory.shm_bytes, 56u * 1024);
  EXPECT_EQ(parse_process_status("").peak_rss_bytes, 0u);
}

TEST(ProcStats, SharedMemoryPeakStaysAfterItWasGivenBack) {
  constexpr std::size_t kSize = 8U << 20U;
  void* shared = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::memset(shared, 1, kSize);
  MemoryPeaks peaks;
  peaks.sample();
  ::munmap(shared, kSize);
  peaks.sample();
  EXPECT_GE(peaks.peak_shm_bytes(), kSize);
  EXPECT_LT(read_process_memory().shm_bytes, kSize);
  EXPECT_GE(peaks.peak_rss_bytes(), kSize);
}

TEST(ProcStats, StealIsItsShareOfAllTicksBetween) {
  const auto before =
      parse_cpu_ticks("cpu  100 0 50 800 20 5 5 20 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  const auto after = parse_cpu_ticks("cpu  150 0 60 820 20 5 5 40 9 0\n");
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->all, 1000u) << "guest time is part of user";
  EXPECT_DOUBLE_EQ(steal_share(*before, *after), 0.2);
  EXPECT_EQ(steal_share(*after, *before), 0);
  EXPECT_FALSE(parse_cpu_ticks("intr 1 2 3"));
  EXPECT_TRUE(read_cpu_ticks());
}

TEST(ProcStats, CpuSecondsGrowWithWork) {
  const double before = process_cpu_s(), thread_before = thread_cpu_s();
  volatile double x = 1;
  while (thread_cpu_s() - thread_before < 0.01) x = x * 1.0000001;
  EXPECT_GE(process_cpu_s() - before, 0.009);
}

TEST(DeviceCounts, SectorsAre512Bytes) {
  const auto counts = parse_device_stat("     10  0  2048  9  20  0  4096  8  0  1  1\n");
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->read_bytes, 1u << 20U);
  EXPECT_EQ(counts->written_bytes, 2u << 20U);
  EXPECT_EQ(counts->reads, 10u);
  EXPECT_EQ(counts->writes, 20u);
  EXPECT_FALSE(parse_device_stat("1 2 3"));
}

TEST(DeviceCounts, FileSystemsWithoutADeviceAreSaidToBeUnavailable) {
  EXPECT_FALSE(device_stat_file("/proc/self/status"));
  EXPECT_FALSE(device_stat_file("/no/such/file"));
}

}  // namespace
}  // namespace kvstream
