#include "replay/model_copies.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace kvstream {
namespace {

constexpr std::uint32_t kBlock = 1'000'000;  // 1 ms at 1 GB/s

PlaceJob place_job(std::uint64_t id, std::uint32_t copies = 1) {
  PlaceJob job;
  job.id = id;
  job.size_bytes = kBlock;
  job.copies = copies;
  return job;
}

StageJob stage_job(std::uint64_t id) {
  StageJob job;
  job.id = id;
  job.size_bytes = kBlock;
  return job;
}

std::vector<std::uint64_t> placed(ModelCopies& copies) {
  std::array<PlaceDone, 16> done;
  std::vector<std::uint64_t> ids;
  const std::size_t count = copies.poll(done);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(done[i].good);
    ids.push_back(done[i].id);
  }
  return ids;
}

std::vector<std::uint64_t> staged(ModelCopies& copies) {
  std::array<StageDone, 16> done;
  std::vector<std::uint64_t> ids;
  const std::size_t count = copies.poll_staged(done);
  for (std::size_t i = 0; i < count; ++i) ids.push_back(done[i].id);
  return ids;
}

using Ids = std::vector<std::uint64_t>;

class ModelCopiesTest : public testing::Test {
 protected:
  void SetUp() override { clock_.set(kSecond); }
  FakeClock clock_;
};

TEST_F(ModelCopiesTest, WithoutRatesAJobIsDoneAtOnceAndInTheOrderOfArrival) {
  ModelCopies copies({}, clock_);
  for (const std::uint64_t id : {7, 3, 9}) ASSERT_TRUE(copies.submit(place_job(id)));
  EXPECT_EQ(copies.next_event(), kSecond);
  EXPECT_EQ(placed(copies), (Ids{7, 3, 9}));
  EXPECT_EQ(copies.next_event(), kNever);
}

TEST_F(ModelCopiesTest, AThreadDoesOneJobAfterTheOtherAndNothingIsDoneBeforeItsEnd) {
  ModelCopies copies({1, 1e9, 0}, clock_);
  copies.submit(place_job(1));
  copies.submit(place_job(2));
  EXPECT_EQ(copies.next_event(), kSecond + kMillisecond);
  clock_.advance(kMillisecond - 1);
  EXPECT_EQ(placed(copies), Ids{});
  clock_.advance(1);
  EXPECT_EQ(placed(copies), Ids{1});
  clock_.advance(kMillisecond);
  EXPECT_EQ(placed(copies), Ids{2});
}

TEST_F(ModelCopiesTest, ThreadsWorkSideBySideAndPlacingAndStagingShareThem) {
  ModelCopies copies({2, 1e9, 0}, clock_);
  copies.submit(place_job(1));
  copies.submit_stage(stage_job(2));
  copies.submit(place_job(3));
  clock_.advance(kMillisecond);
  EXPECT_EQ(placed(copies), Ids{1});
  EXPECT_EQ(staged(copies), Ids{2});
  EXPECT_EQ(copies.next_event(), kSecond + 2 * kMillisecond);
}

TEST_F(ModelCopiesTest, ABlockForSeveralRequestsIsCopiedSeveralTimes) {
  ModelCopies copies({1, 1e9, 0}, clock_);
  copies.submit(place_job(1, 3));
  EXPECT_EQ(copies.next_event(), kSecond + 3 * kMillisecond);
}

TEST_F(ModelCopiesTest, TheLinkIsOneAfterTheOtherForAllThreadsAndOneWayEach) {
  ModelCopies copies({4, 1e9, 0.5e9}, clock_);
  copies.submit(place_job(1));
  copies.submit(place_job(2));
  copies.submit_stage(stage_job(3));
  // Both copies are made after 1 ms; the link in takes 2 ms for each, the link out is another.
  clock_.advance(3 * kMillisecond);
  EXPECT_EQ(placed(copies), Ids{1});
  EXPECT_EQ(staged(copies), Ids{3});
  clock_.advance(2 * kMillisecond);
  EXPECT_EQ(placed(copies), Ids{2});
}

TEST_F(ModelCopiesTest, ASmallResultArrayTakesTheRestNextTime) {
  ModelCopies copies({}, clock_);
  for (std::uint64_t id = 0; id < 20; ++id) copies.submit(place_job(id));
  EXPECT_EQ(placed(copies).size(), 16U);
  EXPECT_EQ(placed(copies), (Ids{16, 17, 18, 19}));
}

}  // namespace
}  // namespace kvstream
