#include "replay/model_tier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "replay/engine_rig.hpp"
#include "replay/random.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kBlock = 8192;
using Kind = CatalogChange::Kind;

class ModelTierTest : public testing::Test {
 protected:
  void SetUp() override { clock_.set(10 * kSecond); }

  void store(Visibility visibility, std::uint64_t slots = 8) {
    TierSpec spec{"pfs", "pfs", "", slots * kBlock, {}, 0};
    store_.emplace(ModelStore::Options{spec, visibility, kBlock, kSecond});
    device_.emplace("pfs:job", model_);
  }
  std::unique_ptr<ModelTier> open(std::uint32_t node, std::uint32_t writers = 1) {
    return store_->open(node, writers, *device_, clock_);
  }

  /// Writes a block and lets time pass until it is there.
  SlotRef put(ModelTier& tier, const BlockKey& key) {
    const auto at = tier.reserve(kBlock);
    EXPECT_TRUE(at);
    const WriteOp op{1, key, *at, kBlock, 0, nullptr};
    EXPECT_EQ(tier.submit_writes({&op, 1}), 1U);
    finish(tier);
    return *at;
  }
  Completion finish(ModelTier& tier) {
    Completion done;
    if (tier.next_event() != kNever) clock_.set(std::max(clock_.now(), tier.next_event()));
    for (int i = 0; i < 100 && tier.poll({&done, 1}) == 0; ++i) clock_.advance(kMillisecond);
    return done;
  }
  Code read(ModelTier& tier, SlotRef at) {
    const ReadOp op{2, at, kBlock, {}};
    EXPECT_EQ(tier.submit_reads({&op, 1}), 1U);
    return finish(tier).code;
  }
  static std::vector<CatalogChange> news(ModelTier& tier) {
    std::vector<CatalogChange> all(64);
    all.resize(tier.changes(all));
    return all;
  }

  FakeClock clock_;
  DeviceModel model_{1e9, 1e9, kMillisecond, kMillisecond, 0, 0, 0};
  std::optional<ModelStore> store_;
  std::optional<ModelDevice> device_;
};

TEST_F(ModelTierTest, ABlockIsReadBackWhenItWasWrittenAndNotBefore) {
  store(Visibility::kRank);
  auto tier = open(0);
  const auto at = tier->reserve(kBlock);
  ASSERT_TRUE(at);
  EXPECT_EQ(read(*tier, *at), Code::kNotFound);
  const WriteOp op{1, family_key(1, 1), *at, kBlock, 0, nullptr};
  ASSERT_EQ(tier->submit_writes({&op, 1}), 1U);
  EXPECT_EQ(finish(*tier).code, Code::kOk);
  EXPECT_EQ(read(*tier, *at), Code::kOk);
}

TEST_F(ModelTierTest, OperationsEndInOrderAndNoneBeforeTheDeviceHasDoneIt) {
  store(Visibility::kRank);
  auto tier = open(0);
  const SlotRef at = put(*tier, family_key(1, 1));
  const Nanos begun = clock_.now();
  std::array<ReadOp, 5> ops;
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i] = {100 + i, at, kBlock, {}};
  ASSERT_EQ(tier->submit_reads(ops), 5U);
  std::array<Completion, 8> done;
  EXPECT_EQ(tier->poll(done), 0U);
  std::vector<std::uint64_t> ids;
  while (tier->next_event() != kNever) {
    clock_.set(tier->next_event());
    const std::size_t count = tier->poll(done);
    ASSERT_GT(count, 0U);
    for (std::size_t i = 0; i < count; ++i) ids.push_back(done[i].id);
  }
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{100, 101, 102, 103, 104}));
  EXPECT_EQ(clock_.now(), begun + kMillisecond + 5 * kBlock);
}

TEST_F(ModelTierTest, ASlotThatWasUsedAgainReadsAsNotFound) {
  store(Visibility::kJob, 1);
  auto writer = open(0), reader = open(1);
  const SlotRef at = put(*writer, family_key(1, 1));
  EXPECT_EQ(read(*reader, at), Code::kOk);
  writer->free(at);
  EXPECT_EQ(read(*reader, at), Code::kNotFound);
  const SlotRef again = put(*writer, family_key(1, 2));
  EXPECT_EQ(again.slot, at.slot);
  EXPECT_EQ(read(*reader, at), Code::kNotFound);
  EXPECT_EQ(read(*reader, again), Code::kOk);
}

TEST_F(ModelTierTest, ASlotThatIsUsedAgainWhileItIsReadIsNotFound) {
  store(Visibility::kJob, 1);
  auto writer = open(0), reader = open(1);
  const SlotRef at = put(*writer, family_key(1, 1));
  const ReadOp op{2, at, kBlock, {}};
  ASSERT_EQ(reader->submit_reads({&op, 1}), 1U);
  writer->free(at);
  EXPECT_EQ(finish(*reader).code, Code::kNotFound);
}

TEST_F(ModelTierTest, ABlockOfATierThatIsGoneReadsAsNotFound) {
  store(Visibility::kJob);
  auto writer = open(0), reader = open(1);
  const SlotRef at = put(*writer, family_key(1, 1));
  writer.reset();
  EXPECT_EQ(read(*reader, at), Code::kNotFound);
}

TEST_F(ModelTierTest, OthersHearOfABlockAtTheNextWholePeriodAndTheWriterDoesNot) {
  store(Visibility::kJob);
  auto writer = open(0), reader = open(1);
  clock_.set(10 * kSecond + 300 * kMillisecond);
  const SlotRef at = put(*writer, family_key(1, 1));
  EXPECT_TRUE(news(*reader).empty());
  EXPECT_EQ(reader->next_event(), 11 * kSecond);
  clock_.set(11 * kSecond - 1);
  EXPECT_TRUE(news(*reader).empty());
  clock_.set(11 * kSecond);
  const auto heard = news(*reader);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].kind, Kind::kAdded);
  EXPECT_FALSE(heard[0].own);
  EXPECT_EQ(heard[0].key, family_key(1, 1));
  EXPECT_EQ(heard[0].at, at);
  EXPECT_EQ(heard[0].size_bytes, kBlock);
  EXPECT_TRUE(news(*reader).empty());
  EXPECT_TRUE(news(*writer).empty());
  writer->free(at);
  clock_.advance(kSecond);
  const auto removed = news(*reader);
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].kind, Kind::kRemoved);
  EXPECT_EQ(removed[0].at, at);
}

TEST_F(ModelTierTest, VisibilityOfANodeEndsAtTheNodeAndOfARankAtTheRank) {
  for (const auto& [visibility, here, elsewhere] : {std::tuple{Visibility::kRank, false, false},
                                                    {Visibility::kNode, true, false},
                                                    {Visibility::kJob, true, true}}) {
    store(visibility);
    auto writer = open(0), neighbour = open(0), other = open(1);
    put(*writer, family_key(1, 1));
    ASSERT_TRUE(writer->preload(family_key(1, 2), kBlock));
    clock_.advance(2 * kSecond);
    EXPECT_EQ(news(*neighbour).size(), here ? 2U : 0U);
    EXPECT_EQ(news(*other).size(), elsewhere ? 2U : 0U);
    EXPECT_EQ(news(*writer).size(), 1U) << "its own preload";
  }
}

TEST_F(ModelTierTest, APreloadedBlockIsKnownToAllWhoSeeItAlsoToThoseThatAreOpenedLater) {
  store(Visibility::kJob);
  auto writer = open(0), before = open(1);
  ASSERT_TRUE(writer->preload(family_key(1, 1), kBlock));
  auto after = open(2);
  for (ModelTier* tier : {before.get(), after.get()}) {
    const auto heard = news(*tier);
    ASSERT_EQ(heard.size(), 1U);
    EXPECT_FALSE(heard[0].own);
    EXPECT_EQ(read(*tier, heard[0].at), Code::kOk);
  }
  const auto own = news(*writer);
  ASSERT_EQ(own.size(), 1U);
  EXPECT_TRUE(own[0].own);
}

TEST_F(ModelTierTest, APreloadThatFindsNoSlotSaysSo) {
  store(Visibility::kJob, 2);
  auto tier = open(0);
  EXPECT_TRUE(tier->preload(family_key(1, 1), kBlock));
  EXPECT_TRUE(tier->preload(family_key(1, 2), 1));
  EXPECT_FALSE(tier->preload(family_key(1, 3), kBlock));
}

TEST_F(ModelTierTest, WritersShareTheCapEvenly) {
  store(Visibility::kJob, 8);
  auto tier = open(0, 3);
  EXPECT_EQ(tier->report().capacity_bytes, 2U * kBlock);
  EXPECT_TRUE(tier->reserve(kBlock));
  EXPECT_TRUE(tier->reserve(kBlock));
  const auto full = tier->reserve(kBlock);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), Code::kNoSpace);
  const auto large = tier->reserve(kBlock + 1);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kInvalidArgument);
}

TEST_F(ModelTierTest, ARecheckIsAnsweredWithRecycled) {
  store(Visibility::kJob);
  auto writer = open(0), reader = open(1);
  const SlotRef at = put(*writer, family_key(1, 1));
  reader->recheck({Kind::kBad, false, family_key(1, 1), at, kBlock, 0});
  const auto answer = news(*reader);
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].kind, Kind::kRecycled);
}

TEST_F(ModelTierTest, MoreThanItTakesIsLeftToTheCaller) {
  store(Visibility::kRank);
  auto tier = open(0);
  const SlotRef at = put(*tier, family_key(1, 1));
  const std::vector<ReadOp> ops(tier->traits().in_flight_max + 10, ReadOp{1, at, kBlock, {}});
  EXPECT_EQ(tier->submit_reads(ops), tier->traits().in_flight_max);
  EXPECT_EQ(tier->submit_reads(ops), 0U);
  EXPECT_EQ(tier->report().sharers, 1U);
}

TEST_F(ModelTierTest, SlotsAreConservedAndNoneIsHandedOutTwice) {
  const int sequences = std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 500 : 20;
  for (int seed = 1; seed <= sequences; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed));
    store(Visibility::kJob, 12);
    auto tier = open(0), reader = open(1);
    std::map<std::uint32_t, SlotRef> taken;
    std::vector<SlotRef> stale;
    std::uint64_t generation_seen = 0;
    for (int i = 0; i < 400; ++i) {
      const auto report = tier->report();
      ASSERT_EQ(report.used_bytes, taken.size() * kBlock);
      ASSERT_EQ(report.used_bytes + report.free_bytes, report.capacity_bytes);
      if (random.unit() < 0.55) {
        const auto at = tier->reserve(kBlock);
        ASSERT_EQ(at.has_value(), taken.size() < 12);
        if (!at) continue;
        ASSERT_TRUE(taken.emplace(at->slot, *at).second) << "handed out twice";
        generation_seen = std::max(generation_seen, at->generation);
      } else if (!taken.empty()) {
        auto at = taken.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random.between(0, taken.size() - 1)));
        tier->free(at->second);
        tier->free(at->second);  // a second time changes nothing
        stale.push_back(at->second);
        taken.erase(at);
      }
    }
    for (const SlotRef& at : stale) ASSERT_EQ(read(*reader, at), Code::kNotFound);
  }
}

}  // namespace
}  // namespace kvstream
