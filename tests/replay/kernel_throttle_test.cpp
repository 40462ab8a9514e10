#include "replay/kernel_throttle.hpp"

#include <gtest/gtest.h>

namespace kvstream {
namespace {

TEST(KernelThrottle, TheLimitOfADeviceIsThatOfItsOwnLine) {
  constexpr char kText[] = "7:10 1000\n7:1 500000000\n";
  EXPECT_EQ(parse_blkio_limit(kText, "7:1"), 500'000'000U);
  EXPECT_EQ(parse_blkio_limit(kText, "7:10"), 1000U);
  EXPECT_FALSE(parse_blkio_limit(kText, "7:0"));
  EXPECT_FALSE(parse_blkio_limit("", "7:1"));
}

TEST(KernelThrottle, AnUnlimitedReadRateIsNoLimit) {
  constexpr char kText[] = "8:0 rbps=max wbps=1000 riops=max wiops=max\n8:16 rbps=2000 wbps=max\n";
  EXPECT_FALSE(parse_io_max_limit(kText, "8:0"));
  EXPECT_EQ(parse_io_max_limit(kText, "8:16"), 2000U);
}

TEST(KernelThrottle, APathThatIsNotThereHasNoLimit) {
  EXPECT_FALSE(kernel_read_limit("/no/such/path"));
}

}  // namespace
}  // namespace kvstream
