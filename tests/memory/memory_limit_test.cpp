#include "memory/memory_limit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace kvstream {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1U << 20U;

// A recorded tree of /proc and /sys/fs/cgroup under a temporary directory.
class MemoryLimit : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (fs::temp_directory_path() / "kvstream-memory-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    put("/proc/meminfo", "MemTotal: 24000000 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void mount_version_1(const std::string& mount_root = "/") {
    put("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
        "35 31 0:32 " +
            mount_root + " /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n");
  }
  void mount_version_2() {
    put("/proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void group_version_1(const std::string& path, std::uint64_t limit, std::uint64_t usage,
                       const std::string& stat = "") {
    const std::string directory = "/sys/fs/cgroup/memory" + path;
    put(directory + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    put(directory + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    put(directory + "/memory.stat", stat);
  }
  void group_version_2(const std::string& path, const std::string& limit, std::uint64_t usage,
                       const std::string& stat = "") {
    const std::string directory = "/sys/fs/cgroup" + path;
    put(directory + "/memory.max", limit + "\n");
    put(directory + "/memory.current", std::to_string(usage) + "\n");
    put(directory + "/memory.stat", stat);
  }

  std::string root_;
};

TEST_F(MemoryLimit, IsMemAvailableWithoutControlGroups) {
  const MemoryBudget budget = memory_budget(root_);
  EXPECT_EQ(budget.available_bytes, 8192 * kMiB);
  EXPECT_EQ(budget.limited_by, "MemAvailable");
}

TEST_F(MemoryLimit, FollowsAVersion1Group) {
  mount_version_1();
  put("/proc/self/cgroup", "5:devices:/\n4:memory:/job/step\n0::/\n");
  group_version_1("/job/step", 1000 * kMiB, 400 * kMiB);
  const MemoryBudget budget = memory_budget(root_);
  EXPECT_EQ(budget.available_bytes, 600 * kMiB);
  EXPECT_EQ(budget.limited_by, "/sys/fs/cgroup/memory/job/step");
}

TEST_F(MemoryLimit, FollowsTheGroupsAboveToo) {
  mount_version_1();
  put("/proc/self/cgroup", "4:cpu,memory:/job/step\n");
  group_version_1("/job/step", 9223372036854771712ULL, 100 * kMiB);
  group_version_1("/job", 500 * kMiB, 300 * kMiB);
  const MemoryBudget budget = memory_budget(root_);
  EXPECT_EQ(budget.available_bytes, 200 * kMiB);
  EXPECT_EQ(budget.limited_by, "/sys/fs/cgroup/memory/job");
}

TEST_F(MemoryLimit, FollowsAVersion2GroupAndItsParents) {
  mount_version_2();
  put("/proc/self/cgroup", "0::/job/step\n");
  group_version_2("/job/step", "max", 100 * kMiB);
  group_version_2("/job", std::to_string(512 * kMiB), 500 * kMiB);
  const MemoryBudget budget = memory_budget(root_);
  EXPECT_EQ(budget.available_bytes, 12 * kMiB);
  EXPECT_EQ(budget.limited_by, "/sys/fs/cgroup/job");
}

TEST_F(MemoryLimit, TakesTheLesserWhenBothVersionsAreMounted) {
  put("/proc/self/mountinfo",
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("/proc/self/cgroup", "4:memory:/a\n0::/b\n");
  group_version_1("/a", 1000 * kMiB, 0);
  put("/sys/fs/cgroup/unified/b/memory.max", "104857600\n");
  put("/sys/fs/cgroup/unified/b/memory.current", "0\n");
  EXPECT_EQ(memory_budget(root_).available_bytes, 100 * kMiB);
}

TEST_F(MemoryLimit, CountsPageCacheOfTheGroupAsFree) {
  mount_version_2();
  put("/proc/self/cgroup", "0::/job\n");
  group_version_2("/job", std::to_string(1000 * kMiB), 900 * kMiB,
                  "anon 5\ninactive_file 419430400\nactive_file 209715200\n");
  EXPECT_EQ(memory_budget(root_).available_bytes, (100 + 400 + 100) * kMiB);
}

TEST_F(MemoryLimit, FindsTheGroupOfAContainerThatMountsItselfAsTheRoot) {
  mount_version_1("/docker/abc");
  put("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  group_version_1("/inner", 300 * kMiB, 100 * kMiB);
  EXPECT_EQ(memory_budget(root_).available_bytes, 200 * kMiB);
  put("/proc/self/cgroup", "4:memory:/docker/abc\n");
  group_version_1("", 250 * kMiB, 100 * kMiB);
  EXPECT_EQ(memory_budget(root_).available_bytes, 150 * kMiB);
}

TEST_F(MemoryLimit, IsZeroInAFullGroup) {
  mount_version_2();
  put("/proc/self/cgroup", "0::/job\n");
  group_version_2("/job", std::to_string(100 * kMiB), 101 * kMiB);
  EXPECT_EQ(memory_budget(root_).available_bytes, 0U);
}

TEST_F(MemoryLimit, IsNotLimitedByWhatCannotBeRead) {
  put("/proc/self/mountinfo", "garbage\n\n35 31 0:32 - cgroup\n");
  put("/proc/self/cgroup", "nonsense\n4:memory\n:::\n");
  EXPECT_EQ(memory_budget(root_).available_bytes, 8192 * kMiB);
}

TEST(MemoryCheck, NamesBothFiguresWhenTooMuchIsAsked) {
  const std::uint64_t available = memory_available_bytes();
  ASSERT_GT(available, 0U);
  EXPECT_TRUE(check_memory(0, "nothing").is_ok());
  const Status status = check_memory(1ULL << 60U, "the test");
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_THAT(status.message(), HasSubstr("1152921504606846976 B"));
  EXPECT_THAT(status.message(), HasSubstr("the test"));
  EXPECT_THAT(status.message(), HasSubstr("are left"));
}

}  // namespace
}  // namespace kvstream
