#include "ranks/file_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ranks/group_contract.hpp"

namespace kvstream {
namespace {

using testing::HasSubstr;

FileGroup::Options options_of(const std::string& directory, std::uint32_t rank,
                              std::uint32_t size) {
  FileGroup::Options options;
  options.directory = directory;
  options.rank = rank;
  options.size = size;
  options.node = "node0";
  options.timeout = 100 * kMillisecond;
  options.leave_timeout = 10 * kMillisecond;
  return options;
}

TEST(FileGroup, NamesTheRanksThatDidNotComeToTheStart) {
  const test::SharedDirectory directory;
  const auto alone = FileGroup::open(options_of(directory.path(), 0, 3));
  ASSERT_FALSE(alone.has_value());
  EXPECT_EQ(alone.error().code(), Code::kTimedOut);
  EXPECT_THAT(alone.error().message(), HasSubstr("ranks 1, 2 of 3"));
  EXPECT_THAT(alone.error().message(), HasSubstr(directory.path()));
}

TEST(FileGroup, NamesRankZeroWhenItDoesNotAnswer) {
  const test::SharedDirectory directory;
  const auto alone = FileGroup::open(options_of(directory.path(), 1, 2));
  ASSERT_FALSE(alone.has_value());
  EXPECT_EQ(alone.error().code(), Code::kTimedOut);
  EXPECT_THAT(alone.error().message(), HasSubstr("rank 0"));
}

TEST(FileGroup, IsNotMisledByWhatAnEarlierJobLeft) {
  const test::SharedDirectory directory;
  // A job whose ranks were killed: hellos, a token, words, and a file that was cut short.
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(directory.path() + "/" + name) << text;
  };
  put("hello.1", "3\nold");
  put("hello.2", "400\ncut short");
  put("job", "23\noldtoken\n1 old\n2 older\n");
  put("oldtoken.0.1", "5\nnode9");
  put("oldtoken.left.2", "0\n");
  test::run_ranks(test::open_file_groups(directory.path(), 3), [](Group& group) {
    EXPECT_NE(group.job(), "oldtoken");
    EXPECT_EQ(group.local_size(), 3U);
    const auto missing = group.barrier(20 * kSecond);
    ASSERT_TRUE(missing.has_value());
    EXPECT_TRUE(missing->empty());
  });
}

TEST(FileGroup, ShowsAStaleJobToNobody) {
  const test::SharedDirectory directory;
  std::ofstream(directory.path() + "/job") << "22\noldtoken\n1 someoneelse";
  const auto group = FileGroup::open(options_of(directory.path(), 1, 2));
  ASSERT_FALSE(group.has_value());
  EXPECT_THAT(group.error().message(), HasSubstr("rank 0 of 2 did not answer"));
}

TEST(FileGroup, KeepsFewFilesAndLeavesNoneOfItsJob) {
  const test::SharedDirectory directory;
  std::size_t most = 0;
  test::run_ranks(test::open_file_groups(directory.path(), 3), [&](Group& group) {
    for (int round = 0; round < 50; ++round) {
      ASSERT_TRUE(group.barrier(20 * kSecond).has_value());
      if (group.rank() == 0) most = std::max(most, directory.count_files());
    }
  });
  // At most two rounds and a file being written of each rank, the hellos and the token.
  EXPECT_LE(most, 3U * 3U + 4U);
  EXPECT_EQ(directory.count_files(), 0U);
}

TEST(FileGroup, RefusesADirectoryThatCannotBeMade) {
  const test::SharedDirectory directory;
  std::ofstream(directory.path() + "/file") << "x";
  const auto group = FileGroup::open(options_of(directory.path() + "/file", 0, 1));
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code(), Code::kIoError);
  EXPECT_THAT(group.error().message(), HasSubstr(directory.path() + "/file"));
}

TEST(FileGroup, RefusesARankThatDoesNotExist) {
  EXPECT_EQ(FileGroup::open(options_of("/tmp", 2, 2)).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(FileGroup::open(options_of("/tmp", 0, 0)).error().code(), Code::kInvalidArgument);
}

TEST(FileGroup, TakesLongWordsOverWithEveryByte) {
  const test::SharedDirectory directory;
  std::string word;
  for (int i = 0; i < 1'000'000; ++i) word += static_cast<char>(i * 7 + i / 256);
  test::run_ranks(test::open_file_groups(directory.path(), 2), [&](Group& group) {
    const auto got = group.broadcast(group.rank() == 0 ? word : "", 20 * kSecond);
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(*got == word);
    ASSERT_TRUE(group.barrier(20 * kSecond).has_value());
  });
}

}  // namespace
}  // namespace kvstream
