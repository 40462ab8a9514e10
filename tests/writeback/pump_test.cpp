#include "writeback/pump.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace kvstream {
namespace {

/// Slots are numbers; writes complete when the test says so.
class SlotTier final : public Tier {
 public:
  explicit SlotTier(std::uint32_t slots) {
    for (std::uint32_t i = slots; i > 0; --i) free_.push_back(i - 1);
  }
  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t) override {
    if (growing) return failure(Code::kOverloaded, "a segment is being made");
    if (free_.empty()) return failure(Code::kNoSpace, "full");
    const auto slot = free_.back();
    free_.pop_back();
    return SlotRef{0, slot, ++generation_};
  }
  void free(SlotRef at) override { free_.push_back(at.slot); }
  std::size_t submit_reads(std::span<const ReadOp>) override { return 0; }
  std::size_t submit_writes(std::span<const WriteOp> ops) override {
    if (writes.size() >= in_flight_max) return 0;
    writes.push_back(ops[0]);
    return 1;
  }
  std::size_t poll(std::span<Completion>) override { return 0; }
  int wait_fd() const override { return -1; }
  Nanos next_event() const override { return kNever; }
  const std::byte* view(SlotRef) const override { return nullptr; }
  std::size_t changes(std::span<CatalogChange>) override { return 0; }
  void recheck(const CatalogChange&) override {}
  Status chore() override { return Status::ok(); }
  TierReport report() const override { return {}; }

  std::size_t count_free() const { return free_.size(); }
  std::vector<WriteOp> writes;
  std::size_t in_flight_max = 64;
  bool growing = false;

 private:
  TierTraits traits_;
  std::vector<std::uint32_t> free_;
  std::uint64_t generation_ = 0;
};

class PumpTest : public testing::Test, public PumpHost {
 protected:
  void on_written(const PumpBlock& block, std::uint32_t copies) override {
    ended_[block.owner] = copies;
  }
  void on_slots_wanted(std::uint8_t) override { ++slots_wanted_; }
  bool reads_wait(std::uint8_t) const override { return reads_wait_; }

  PumpBlock block(std::uint64_t number, std::uint64_t all, std::uint64_t any) {
    PumpBlock made;
    made.block.key.bytes[0] = static_cast<std::uint8_t>(number);
    made.block.size_bytes = 1000;
    made.targets = {all, any};
    made.owner = number;
    return made;
  }
  void complete_all(std::uint8_t tier, Code code = Code::kOk) {
    auto writes = std::move(tiers_[tier].writes);
    tiers_[tier].writes.clear();
    for (const auto& op : writes) pump_.on_write_complete(tier, {op.id, code, 1000}, ++now_);
  }
  /// Blocks 1 to 4 take all of its slots.
  void fill_first_tier() {
    for (std::uint64_t i = 1; i <= 4; ++i) {
      pump_.enqueue(block(i, 0b01, 0), now_);
      pump_.turn(now_);
      complete_all(0);
    }
  }
  ReplicaSet find(std::uint64_t number) {
    return catalog_.find(block(number, 0, 0).block.key, ~std::uint64_t{0});
  }

  SlotTier tiers_[2] = {SlotTier(4), SlotTier(4)};
  Device devices_[2] = {Device({"a", 1000, 1e9, kMillisecond, 64}),
                        Device({"b", 1000, 1e9, kMillisecond, 64})};
  Catalog catalog_{{1000, 16, 2, make_lru_order}};
  WriteBackPump pump_{
      {}, {{&tiers_[0], &devices_[0]}, {&tiers_[1], &devices_[1]}}, catalog_, *this};
  std::map<std::uint64_t, std::uint32_t> ended_;
  bool reads_wait_ = false;
  int slots_wanted_ = 0;
  Nanos now_ = 0;
};

TEST_F(PumpTest, PublishesOnlyAfterTheWriteHasCompleted) {
  pump_.enqueue(block(1, 0b01, 0), now_);
  pump_.turn(now_);
  ASSERT_EQ(tiers_[0].writes.size(), 1U);
  EXPECT_EQ(find(1).count, 0);
  EXPECT_TRUE(ended_.empty());
  complete_all(0);
  EXPECT_EQ(find(1).count, 1);
  EXPECT_EQ(ended_.at(1), 1U);
  EXPECT_TRUE(pump_.idle());
}

TEST_F(PumpTest, ABlockForAnyTierIsWrittenOnce) {
  pump_.enqueue(block(1, 0, 0b11), now_);
  pump_.turn(now_);
  EXPECT_EQ(tiers_[0].writes.size() + tiers_[1].writes.size(), 1U);
  complete_all(0);
  complete_all(1);
  EXPECT_EQ(ended_.at(1), 1U);
}

TEST_F(PumpTest, BlocksSpreadToTheTierThatHasRoom) {
  tiers_[0].in_flight_max = 1;
  for (std::uint64_t i = 1; i <= 3; ++i) pump_.enqueue(block(i, 0, 0b11), now_);
  pump_.turn(now_);
  EXPECT_EQ(tiers_[0].writes.size(), 1U);
  EXPECT_EQ(tiers_[1].writes.size(), 2U);
}

TEST_F(PumpTest, BlocksSpreadByWriteSpeedAlsoWhileEveryTierHasRoom) {
  // One block at a time: each tier could take them all. The first takes three times as long.
  const Nanos takes[2] = {300 * kMicrosecond, 100 * kMicrosecond};
  std::uint64_t count[2] = {0, 0};
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t number = 1 + i % 3;
    catalog_.retract(block(number, 0, 0).block.key,
                     find(number).count > 0 ? find(number).at[0] : Replica{});
    std::vector<Victim> freed(4);
    for (auto n = catalog_.take_freed(freed); n > 0; n = catalog_.take_freed(freed)) {
      for (std::size_t v = 0; v < n; ++v) tiers_[freed[v].replica.tier].free(freed[v].replica.at);
    }
    pump_.enqueue(block(number, 0, 0b11), now_);
    pump_.turn(now_);
    const std::uint8_t tier = tiers_[0].writes.empty() ? 1 : 0;
    ASSERT_EQ(tiers_[tier].writes.size(), 1U);
    ++count[tier];
    now_ += takes[tier];
    complete_all(tier);
    now_ += kMillisecond;
  }
  const double ratio = static_cast<double>(count[1]) / static_cast<double>(count[0]);
  EXPECT_NEAR(ratio, 3, 0.4) << count[0] << " and " << count[1];
}

TEST_F(PumpTest, ASlowTierLeavesTheLastBlockToAFastOneThatIsAtWork) {
  // Both have shown their speed: the second is ten times as fast.
  for (std::uint8_t tier = 0; tier < 2; ++tier) {
    pump_.enqueue(block(1 + tier, std::uint64_t{1} << tier, 0), now_);
    pump_.turn(now_);
    now_ += tier == 0 ? kMillisecond : 100 * kMicrosecond;
    complete_all(tier);
  }
  pump_.enqueue(block(3, 0b10, 0), now_);  // the fast one is at work
  pump_.turn(now_);
  ASSERT_EQ(tiers_[1].writes.size(), 1U);
  tiers_[1].in_flight_max = 1;  // and has no place
  pump_.enqueue(block(4, 0, 0b11), now_);
  EXPECT_NE(pump_.turn(now_), kNever) << "somebody has to look again";
  EXPECT_TRUE(tiers_[0].writes.empty()) << "1 ms alone, 0.2 ms behind the other";
  // It comes late: what has waited for long is declined by nobody.
  now_ += 10 * kMillisecond;
  pump_.turn(now_);
  EXPECT_EQ(tiers_[0].writes.size(), 1U);
}

TEST_F(PumpTest, ASlowTierTakesItsPartOfABacklog) {
  for (std::uint8_t tier = 0; tier < 2; ++tier) {
    pump_.enqueue(block(1 + tier, std::uint64_t{1} << tier, 0), now_);
    pump_.turn(now_);
    now_ += tier == 0 ? 400 * kMicrosecond : 100 * kMicrosecond;
    complete_all(tier);
  }
  tiers_[1].in_flight_max = 1;
  for (std::uint64_t i = 10; i < 30; ++i) pump_.enqueue(block(i, 0, 0b11), now_);
  pump_.turn(now_);
  EXPECT_GE(tiers_[0].writes.size(), 1U);
}

TEST_F(PumpTest, AllMeansACopyInEachTier) {
  pump_.enqueue(block(1, 0b11, 0), now_);
  pump_.turn(now_);
  complete_all(0);
  EXPECT_TRUE(ended_.empty());
  complete_all(1);
  EXPECT_EQ(ended_.at(1), 2U);
  EXPECT_EQ(find(1).count, 2);
}

TEST_F(PumpTest, AFullTierEvictsFirstAndFreesTheSlotsAfterwards) {
  fill_first_tier();
  EXPECT_EQ(tiers_[0].count_free(), 0U);
  pump_.enqueue(block(5, 0b01, 0), now_);
  pump_.turn(now_);
  complete_all(0);
  EXPECT_EQ(ended_.at(5), 1U);
  EXPECT_EQ(find(1).count, 0);  // the oldest left
  EXPECT_EQ(pump_.counters(0).evicted, 4U);
  EXPECT_EQ(catalog_.counts().replicas + tiers_[0].count_free(), 4U);
}

TEST_F(PumpTest, WhenEverythingIsHeldTheBlockIsDropped) {
  fill_first_tier();
  for (std::uint64_t i = 1; i <= 4; ++i) catalog_.find_and_hold(block(i, 0, 0).block.key, 1);
  pump_.enqueue(block(5, 0b01, 0), now_);
  pump_.turn(now_);
  EXPECT_EQ(ended_.at(5), 0U);
}

TEST_F(PumpTest, AFailedWriteIsTriedOnAnotherTierAndItsSlotIsFree) {
  pump_.enqueue(block(1, 0, 0b11), now_);
  pump_.turn(now_);
  complete_all(0, Code::kIoError);
  EXPECT_EQ(tiers_[0].count_free(), 4U);
  EXPECT_TRUE(ended_.empty());
  pump_.turn(now_);
  complete_all(1);
  EXPECT_EQ(ended_.at(1), 1U);
  EXPECT_EQ(pump_.counters(0).errors, 1U);
}

TEST_F(PumpTest, WhenEveryTierFailsTheBlockIsDroppedAndNothingIsPublished) {
  pump_.enqueue(block(1, 0, 0b11), now_);
  for (int i = 0; i < 3; ++i) {
    pump_.turn(now_);
    complete_all(0, Code::kNoSpace);
    complete_all(1, Code::kIoError);
  }
  EXPECT_EQ(ended_.at(1), 0U);
  EXPECT_EQ(find(1).count, 0);
  EXPECT_TRUE(pump_.idle());
}

TEST_F(PumpTest, WhileReadsWaitWritesNeedCredit) {
  reads_wait_ = true;
  devices_[0].set_demand(true);
  pump_.enqueue(block(1, 0b01, 0), now_);
  pump_.turn(now_);
  EXPECT_TRUE(tiers_[0].writes.empty());
  devices_[0].earn_write_credit(8'900, 0.10);  // earns 988.9 B
  pump_.turn(now_);
  EXPECT_TRUE(tiers_[0].writes.empty());
  devices_[0].earn_write_credit(200, 0.10);
  pump_.turn(now_);
  EXPECT_EQ(tiers_[0].writes.size(), 1U);
  pump_.enqueue(block(2, 0b01, 0), now_);
  pump_.turn(now_);
  EXPECT_EQ(tiers_[0].writes.size(), 1U);
  reads_wait_ = false;
  devices_[0].set_demand(false);
  pump_.turn(now_);
  EXPECT_EQ(tiers_[0].writes.size(), 2U);
}

TEST_F(PumpTest, WaitsForASegmentInTheMakingButNotForEver) {
  tiers_[0].growing = true;
  pump_.enqueue(block(1, 0b01, 0), now_);
  EXPECT_LT(pump_.turn(now_), kNever);  // looks again by itself
  EXPECT_EQ(slots_wanted_, 1);
  EXPECT_TRUE(ended_.empty());
  now_ += 11 * kSecond;
  pump_.turn(now_);
  EXPECT_EQ(ended_.at(1), 0U);
}

TEST_F(PumpTest, ATierThatHasTheBlockAlreadyGetsNoSecondCopy) {
  pump_.enqueue(block(1, 0b01, 0), now_);
  pump_.turn(now_);
  complete_all(0);
  auto again = block(1, 0, 0b11);
  again.owner = 2;
  pump_.enqueue(again, now_);
  pump_.turn(now_);
  EXPECT_TRUE(tiers_[0].writes.empty());
  EXPECT_TRUE(tiers_[1].writes.empty());
  EXPECT_EQ(ended_.at(2), 1U);
}

TEST_F(PumpTest, ABlockThatTwoStepsComputedAtOnceIsKeptOnce) {
  auto second = block(1, 0b01, 0);
  second.owner = 2;
  pump_.enqueue(block(1, 0b01, 0), now_);
  pump_.enqueue(second, now_);
  pump_.turn(now_);
  ASSERT_EQ(tiers_[0].writes.size(), 2U);
  complete_all(0);
  EXPECT_EQ(ended_.at(1), 1U);
  EXPECT_EQ(ended_.at(2), 1U);
  EXPECT_EQ(catalog_.counts().replicas, 1U);
  EXPECT_EQ(tiers_[0].count_free(), 3U);
}

TEST_F(PumpTest, DroppingTheQueueLeavesWritesInFlightAlone) {
  tiers_[0].in_flight_max = 1;
  pump_.enqueue(block(1, 0b01, 0), now_);
  pump_.enqueue(block(2, 0b01, 0), now_);
  pump_.turn(now_);
  pump_.drop_queued(now_);
  EXPECT_EQ(ended_.at(2), 0U);
  EXPECT_FALSE(ended_.contains(1));
  complete_all(0);
  EXPECT_EQ(ended_.at(1), 1U);
}

}  // namespace
}  // namespace kvstream
