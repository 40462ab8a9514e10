// What every group without MPI must do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "ranks/group_contract.hpp"

namespace kvstream {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Nanos kLong = 20 * kSecond;
constexpr Nanos kShort = 50 * kMillisecond;

struct Make {
  std::string name;
  std::uint32_t count;
};

class GroupContract : public testing::TestWithParam<Make> {
 protected:
  std::vector<std::unique_ptr<Group>> open(const std::vector<std::string>& nodes = {}) {
    const std::uint32_t count = GetParam().count;
    if (GetParam().name == "loopback") return LoopbackGroup::make(count, nodes);
    if (GetParam().name == "files") return test::open_file_groups(directory_.path(), count, nodes);
    std::vector<std::unique_ptr<Group>> one;
    one.push_back(std::make_unique<SoloGroup>(nodes.empty() ? "node0" : nodes[0]));
    return one;
  }
  test::SharedDirectory directory_;
};

TEST_P(GroupContract, GathersEveryonesBytesInOrderOfRank) {
  const std::uint32_t count = GetParam().count;
  test::run_ranks(open(), [&](Group& group) {
    ASSERT_EQ(group.size(), count);
    for (int round = 0; round < 20; ++round) {
      const std::string mine(static_cast<std::size_t>(round) * 1000,
                             static_cast<char>(group.rank()));
      const Result<Gathered> all = group.all_gather(mine, kLong);
      ASSERT_TRUE(all.has_value()) << all.error().to_string();
      EXPECT_THAT(all->missing, IsEmpty());
      ASSERT_EQ(all->bytes.size(), count);
      for (std::uint32_t rank = 0; rank < count; ++rank) {
        EXPECT_EQ(all->bytes[rank], std::string(mine.size(), static_cast<char>(rank)));
      }
    }
  });
}

TEST_P(GroupContract, LetsNobodyThroughABarrierBeforeTheLastHasCome) {
  std::atomic<std::uint32_t> come{0};
  test::run_ranks(open(), [&](Group& group) {
    ++come;
    const auto missing = group.barrier(kLong);
    ASSERT_TRUE(missing.has_value());
    EXPECT_THAT(*missing, IsEmpty());
    EXPECT_EQ(come, GetParam().count);
  });
}

TEST_P(GroupContract, BroadcastsWhatRankZeroSays) {
  test::run_ranks(open(), [&](Group& group) {
    for (int round = 0; round < 5; ++round) {
      const std::string mine = "rank " + std::to_string(group.rank()) + std::to_string(round);
      const Result<std::string> word = group.broadcast(mine, kLong);
      ASSERT_TRUE(word.has_value()) << word.error().to_string();
      EXPECT_EQ(*word, "rank 0" + std::to_string(round));
    }
    EXPECT_TRUE(group.barrier(kLong).has_value());
  });
}

TEST_P(GroupContract, AgreesOnOneJobThatAnotherGroupDoesNotHave) {
  std::set<std::string> jobs;
  std::vector<std::unique_ptr<Group>> ends = open();
  for (const auto& end : ends) {
    ASSERT_NE(end, nullptr);
    jobs.insert(end->job());
  }
  EXPECT_EQ(jobs.size(), 1U);
  EXPECT_GE(jobs.begin()->size(), 16U);
  EXPECT_EQ(jobs.begin()->find_first_of(" /\n"), std::string::npos);
  const std::string first = *jobs.begin();
  test::run_ranks(std::move(ends), [](Group&) {});
  ends = open();
  ASSERT_NE(ends[0], nullptr);
  EXPECT_NE(ends[0]->job(), first);
  test::run_ranks(std::move(ends), [](Group&) {});
}

TEST_P(GroupContract, CountsTheRanksOfEachNode) {
  const std::uint32_t count = GetParam().count;
  std::vector<std::string> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) nodes.push_back(rank % 2 ? "odd" : "even");
  test::run_ranks(open(nodes), [&](Group& group) {
    EXPECT_EQ(group.node(), group.rank() % 2 ? "odd" : "even");
    EXPECT_EQ(group.local_rank(), group.rank() / 2);
    EXPECT_EQ(group.local_size(), group.rank() % 2 ? count / 2 : (count + 1) / 2);
  });
}

TEST_P(GroupContract, NamesARankThatDoesNotCome) {
  if (GetParam().count < 2) GTEST_SKIP() << "a lone rank waits for nobody";
  const std::uint32_t absent = GetParam().count - 1;
  test::run_ranks(open(), [&](Group& group) {
    if (group.rank() == absent) return;
    const Result<Gathered> all = group.all_gather("here", kLong);
    ASSERT_TRUE(all.has_value());
    EXPECT_THAT(all->missing, ElementsAre(absent));
    EXPECT_EQ(all->bytes[0], "here");
    EXPECT_EQ(all->bytes[absent], "");
  });
}

TEST_P(GroupContract, StopsWaitingAtTheDeadline) {
  if (GetParam().count < 2) GTEST_SKIP() << "a lone rank waits for nobody";
  std::vector<std::unique_ptr<Group>> ends = open();
  ASSERT_NE(ends[1], nullptr);
  // All others stand still.
  const Nanos start = SteadyClock::instance().now();
  const auto missing = ends[1]->barrier(kShort);
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->size(), GetParam().count - 1);
  EXPECT_EQ((*missing)[0], 0U);
  EXPECT_EQ(ends[1]->broadcast("", kShort).error().code(), Code::kTimedOut);
  EXPECT_GE(SteadyClock::instance().now() - start, 2 * kShort);
  test::run_ranks(std::move(ends), [](Group&) {});
}

TEST_P(GroupContract, MeetsALateRankAgainInTheNextRound) {
  if (GetParam().count < 2) GTEST_SKIP() << "a lone rank is never late";
  std::atomic<bool> first_round_over{false};
  test::run_ranks(open(), [&](Group& group) {
    if (group.rank() == 1) {
      const auto missing = group.barrier(kShort);
      ASSERT_TRUE(missing.has_value());
      EXPECT_FALSE(missing->empty());
      first_round_over = true;
    } else {
      const Nanos deadline = SteadyClock::instance().now() + kLong;
      while (!first_round_over && SteadyClock::instance().now() < deadline) {
        std::this_thread::yield();
      }
      const auto missing = group.barrier(kLong);
      ASSERT_TRUE(missing.has_value());
      EXPECT_THAT(*missing, IsEmpty());
    }
    const auto missing = group.barrier(kLong);
    ASSERT_TRUE(missing.has_value());
    EXPECT_THAT(*missing, IsEmpty());
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, GroupContract,
                         testing::Values(Make{"solo", 1}, Make{"loopback", 1}, Make{"loopback", 4},
                                         Make{"files", 1}, Make{"files", 2}, Make{"files", 5}),
                         [](const auto& test) {
                           return test.param.name + std::to_string(test.param.count);
                         });

}  // namespace
}  // namespace kvstream
