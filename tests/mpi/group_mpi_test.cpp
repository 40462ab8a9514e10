// MpiGroup, one test per operation, then what happens when a rank is late.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "mpi_tiers/mpi_group.hpp"

namespace kvstream {
namespace {

constexpr Nanos kPlenty = 20 * kSecond;

std::unique_ptr<MpiGroup> open_group(const std::string& node = "auto") {
  auto session = MpiSession::open();
  if (!session) {
    ADD_FAILURE() << session.error().to_string();
    return nullptr;
  }
  MpiGroup::Options options;
  options.node = node;
  auto group = MpiGroup::open(*session, options);
  if (!group) {
    ADD_FAILURE() << group.error().to_string();
    return nullptr;
  }
  return std::move(*group);
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

Nanos now() { return SteadyClock::instance().now(); }

TEST(MpiGroup, KnowsRankAndSizeOfTheWorld) {
  auto group = open_group();
  ASSERT_TRUE(group);
  EXPECT_EQ(group->rank(), static_cast<std::uint32_t>(world_rank()));
  EXPECT_EQ(group->size(), static_cast<std::uint32_t>(world_size()));
  EXPECT_FALSE(group->node().empty());
}

TEST(MpiGroup, RanksWithTheSameNodeNameAreLocalToEachOther) {
  auto group = open_group(world_rank() % 2 == 0 ? "even" : "odd");
  ASSERT_TRUE(group);
  EXPECT_EQ(group->node(), world_rank() % 2 == 0 ? "even" : "odd");
  EXPECT_EQ(group->local_rank(), static_cast<std::uint32_t>(world_rank() / 2));
  const int evens = (world_size() + 1) / 2;
  EXPECT_EQ(group->local_size(),
            static_cast<std::uint32_t>(world_rank() % 2 == 0 ? evens : world_size() - evens));
}

TEST(MpiGroup, JobIsOneWordOnAllRanksAndAnotherInTheNextJob) {
  auto first = open_group();
  auto second = open_group();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->job().size(), 16U);
  EXPECT_NE(first->job(), second->job());
  auto jobs = first->all_gather(first->job(), kPlenty);
  ASSERT_TRUE(jobs);
  for (const std::string& job : jobs->bytes) EXPECT_EQ(job, first->job());
}

TEST(MpiGroup, BarrierWaitsForTheLastRank) {
  auto group = open_group();
  ASSERT_TRUE(group);
  const bool last = group->rank() == group->size() - 1;
  const Nanos late = 100 * kMillisecond;
  // The last rank is late on purpose: lateness is what is tested.
  if (last) std::this_thread::sleep_for(std::chrono::nanoseconds(late));
  const Nanos start = now();
  auto missing = group->barrier(kPlenty);
  ASSERT_TRUE(missing) << missing.error().to_string();
  EXPECT_TRUE(missing->empty());
  if (!last) {
    EXPECT_GE(now() - start, late / 2);
  }
}

TEST(MpiGroup, GatherBringsEveryonesBytesInRankOrder) {
  auto group = open_group();
  ASSERT_TRUE(group);
  const auto bytes_of = [](std::uint32_t rank) {
    return rank == 0 ? std::string() : std::string(rank * 100'000, static_cast<char>('a' + rank));
  };
  auto gathered = group->all_gather(bytes_of(group->rank()), kPlenty);
  ASSERT_TRUE(gathered) << gathered.error().to_string();
  EXPECT_TRUE(gathered->missing.empty());
  ASSERT_EQ(gathered->bytes.size(), group->size());
  for (std::uint32_t rank = 0; rank < group->size(); ++rank) {
    EXPECT_TRUE(gathered->bytes[rank] == bytes_of(rank)) << "rank " << rank;
  }
}

TEST(MpiGroup, BroadcastBringsRankZerosBytes) {
  auto group = open_group();
  ASSERT_TRUE(group);
  const std::string zero_inside("a\0b", 3);
  auto got = group->broadcast(group->rank() == 0 ? zero_inside : "ignored", kPlenty);
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(*got, zero_inside);
}

TEST(MpiGroup, TooManyBytesAreRefusedOnAllRanksAlike) {
  auto group = open_group();
  ASSERT_TRUE(group);
  const std::size_t too_many = static_cast<std::size_t>(MpiGroup::kBytesMax) + 1;
  auto gathered = group->all_gather(std::string(group->rank() == 0 ? too_many : 1, 'x'), kPlenty);
  ASSERT_FALSE(gathered);
  EXPECT_EQ(gathered.error().code(), Code::kInvalidArgument);
  auto missing = group->barrier(kPlenty);
  ASSERT_TRUE(missing);
  EXPECT_TRUE(missing->empty());
}

TEST(MpiGroup, ALateRankIsNamedAndTheOthersBytesStillCome) {
  auto group = open_group();
  ASSERT_TRUE(group);
  if (group->size() < 2) GTEST_SKIP() << "one rank cannot miss another";
  auto other = open_group();  // to meet again, untouched by what happens on the first
  ASSERT_TRUE(other);
  const std::uint32_t late = group->size() - 1;
  if (group->rank() != late) {
    const Nanos start = now();
    auto gathered = group->all_gather(std::to_string(group->rank()), 400 * kMillisecond);
    ASSERT_TRUE(gathered) << gathered.error().to_string();
    EXPECT_LT(now() - start, 5 * kSecond);
    EXPECT_EQ(gathered->missing, std::vector<std::uint32_t>{late});
    for (std::uint32_t rank = 0; rank < late; ++rank) {
      EXPECT_EQ(gathered->bytes[rank], std::to_string(rank));
    }
    EXPECT_EQ(gathered->bytes[late], "");
    EXPECT_TRUE(group->degraded());
  }
  auto met = other->barrier(kPlenty);
  ASSERT_TRUE(met);
  EXPECT_TRUE(met->empty());
  // Now the late rank makes the call that it missed: the others' bytes wait for it.
  if (group->rank() == late) {
    auto gathered = group->all_gather("late", kPlenty);
    ASSERT_TRUE(gathered) << gathered.error().to_string();
    EXPECT_TRUE(gathered->missing.empty());
    for (std::uint32_t rank = 0; rank < late; ++rank) {
      EXPECT_EQ(gathered->bytes[rank], std::to_string(rank));
    }
  }
  // And all of them go on together.
  auto gathered = group->all_gather("again" + std::to_string(group->rank()), kPlenty);
  ASSERT_TRUE(gathered) << gathered.error().to_string();
  for (std::uint32_t rank = 0; rank < group->size(); ++rank) {
    const bool there = gathered->bytes[rank] == "again" + std::to_string(rank);
    EXPECT_TRUE(there || rank == late) << "rank " << rank;
  }
  // The untouched group lets nobody finalize before the others have read their messages.
  auto end = other->barrier(kPlenty);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->empty());
}

TEST(MpiGroup, BroadcastWithoutRankZeroTimesOut) {
  auto group = open_group();
  auto other = open_group();
  ASSERT_TRUE(group && other);
  if (group->size() < 2) GTEST_SKIP() << "one rank cannot miss another";
  if (group->rank() != 0) {
    auto got = group->broadcast("", 300 * kMillisecond);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code(), Code::kTimedOut);
  }
  auto met = other->barrier(kPlenty);
  ASSERT_TRUE(met);
  EXPECT_TRUE(met->empty());
}

const char* env_of(const char* name, std::initializer_list<const char*> set) {
  for (const char* entry : set) {
    const std::string pair = entry;
    if (pair.rfind(std::string(name) + "=", 0) == 0) return entry + std::string(name).size() + 1;
  }
  return nullptr;
}

TEST(MpiSession, RefusesAnSrunThatGivesEachTaskAWorldOfItsOwn) {
  const auto srun = [](const char* name) { return env_of(name, {"SLURM_STEP_NUM_TASKS=4"}); };
  const Status before = check_launch(srun, std::nullopt);
  EXPECT_EQ(before.code(), Code::kUnavailable);
  EXPECT_NE(before.message().find("srun --mpi=pmix"), std::string::npos);
  EXPECT_FALSE(check_launch(srun, 1).is_ok());
  EXPECT_TRUE(check_launch(srun, 4).is_ok());
}

TEST(MpiSession, AcceptsPmixMpirunAndABatchShell) {
  const auto pmix = [](const char* name) {
    return env_of(name, {"SLURM_STEP_NUM_TASKS=4", "PMIX_RANK=0"});
  };
  EXPECT_TRUE(check_launch(pmix, std::nullopt).is_ok());
  EXPECT_FALSE(check_launch(pmix, 1).is_ok());
  const auto mpirun = [](const char* name) {
    return env_of(name, {"SLURM_STEP_NUM_TASKS=4", "OMPI_COMM_WORLD_SIZE=1"});
  };
  EXPECT_TRUE(check_launch(mpirun, std::nullopt).is_ok());
  EXPECT_TRUE(check_launch(mpirun, 1).is_ok());
  const auto batch = [](const char* name) { return env_of(name, {"SLURM_NTASKS=4"}); };
  EXPECT_TRUE(check_launch(batch, std::nullopt).is_ok());
  EXPECT_TRUE(check_launch(batch, 1).is_ok());
}

TEST(MpiSession, JoinsAnMpiThatIsRunningAndDoesNotFinalizeIt) {
  auto session = MpiSession::open();
  ASSERT_TRUE(session) << session.error().to_string();
  EXPECT_EQ((*session)->depart(MpiSession::Company::kComplete, kSecond, {}),
            MpiDeparture::kNotOurs);
  int finalized = 1;
  MPI_Finalized(&finalized);
  EXPECT_EQ(finalized, 0);
}

}  // namespace
}  // namespace kvstream
