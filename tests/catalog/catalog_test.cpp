#include "catalog/catalog.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>

namespace kvstream {
namespace {

constexpr std::uint64_t kAllTiers = ~std::uint64_t{0};

BlockKey key_of(std::uint64_t number) {
  BlockKey key;
  for (int i = 0; i < 8; ++i) {
    key.bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(number >> (8 * i));
  }
  key.bytes[8] = static_cast<std::uint8_t>(number * 37);  // spreads over the shards
  return key;
}

Replica replica_of(std::uint8_t tier, std::uint32_t slot, std::uint64_t generation = 1) {
  return {tier, true, {0, slot, generation}, 4096, slot};
}

Catalog make(std::uint64_t entries_max = 10'000) {
  return Catalog({entries_max, 16, 4, make_lru_order});
}

TEST(Catalog, FindsWhatWasPublishedInOrderOfTier) {
  auto catalog = make();
  EXPECT_TRUE(catalog.publish(key_of(1), replica_of(2, 7)));
  EXPECT_TRUE(catalog.publish(key_of(1), replica_of(0, 3)));
  const auto set = catalog.find(key_of(1), kAllTiers);
  ASSERT_EQ(set.count, 2);
  EXPECT_EQ(set.at[0].tier, 0);
  EXPECT_EQ(set.at[1].tier, 2);
  EXPECT_EQ(set.at[1].at.slot, 7U);
}

TEST(Catalog, LookupMissesAfterTheLastReplicaIsRetracted) {
  auto catalog = make();
  catalog.publish(key_of(1), replica_of(0, 3));
  catalog.publish(key_of(1), replica_of(1, 4));
  EXPECT_TRUE(catalog.retract(key_of(1), replica_of(0, 3)));
  EXPECT_EQ(catalog.find(key_of(1), kAllTiers).count, 1);
  EXPECT_TRUE(catalog.retract(key_of(1), replica_of(1, 4)));
  EXPECT_EQ(catalog.find(key_of(1), kAllTiers).count, 0);
  EXPECT_FALSE(catalog.retract(key_of(1), replica_of(1, 4)));
  EXPECT_EQ(catalog.counts().blocks, 0U);
}

TEST(Catalog, OnlyTiersInTheMaskAreFound) {
  auto catalog = make();
  catalog.publish(key_of(1), replica_of(0, 3));
  EXPECT_EQ(catalog.find(key_of(1), 0b10).count, 0);
  EXPECT_EQ(catalog.find(key_of(1), 0b01).count, 1);
}

TEST(Catalog, AnOwnReplicaHidesAForeignOneOfTheSameTier) {
  auto catalog = make();
  auto foreign = replica_of(1, 9);
  foreign.own = false;
  catalog.publish(key_of(1), foreign);
  catalog.publish(key_of(1), replica_of(1, 4));
  const auto set = catalog.find(key_of(1), kAllTiers);
  ASSERT_EQ(set.count, 1);
  EXPECT_TRUE(set.at[0].own);
  catalog.retract(key_of(1), replica_of(1, 4));
  EXPECT_EQ(catalog.find(key_of(1), kAllTiers).at[0].at.slot, 9U);
}

TEST(Catalog, TheSameSlotIsPublishedOnlyOnce) {
  auto catalog = make();
  EXPECT_TRUE(catalog.publish(key_of(1), replica_of(0, 3)));
  EXPECT_FALSE(catalog.publish(key_of(1), replica_of(0, 3)));
  EXPECT_EQ(catalog.counts().replicas, 1U);
}

TEST(Catalog, IsBounded) {
  auto catalog = make(64);
  std::uint64_t taken = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) taken += catalog.publish(key_of(i), replica_of(0, i));
  EXPECT_LE(taken, 128U);
  EXPECT_GE(taken, 64U);
}

TEST(Catalog, LookupAnswersTheLongestPrefix) {
  auto catalog = make();
  for (std::uint32_t i : {0U, 1U, 3U}) catalog.publish(key_of(i), replica_of(0, i));
  const std::vector<BlockKey> keys{key_of(0), key_of(1), key_of(2), key_of(3)};
  const auto answer = catalog.lookup_and_lease(keys, kAllTiers, kSecond);
  EXPECT_EQ(answer.blocks, 2U);
  EXPECT_TRUE(static_cast<bool>(answer.lease));
  EXPECT_FALSE(answer.pending);
  EXPECT_EQ(catalog.release(answer.lease), 2U);
  EXPECT_EQ(catalog.release(answer.lease), 0U);
}

TEST(Catalog, EvictsTheLeastRecentlyUsedOfATier) {
  auto catalog = make();
  for (std::uint32_t i = 0; i < 100; ++i) catalog.publish(key_of(i), replica_of(0, i));
  catalog.touch(key_of(0));
  const auto victims = catalog.evict(0, 3);
  ASSERT_EQ(victims.size(), 3U);
  EXPECT_EQ(victims[0].key, key_of(1));
  EXPECT_EQ(victims[1].key, key_of(2));
  EXPECT_EQ(victims[2].key, key_of(3));
  EXPECT_EQ(catalog.find(key_of(1), kAllTiers).count, 0);
  EXPECT_EQ(catalog.find(key_of(0), kAllTiers).count, 1);
  EXPECT_TRUE(catalog.evict(1, 3).empty());
}

TEST(Catalog, NeitherLeasedNorHeldNorForeignReplicasAreEvicted) {
  auto catalog = make();
  auto foreign = replica_of(0, 2);
  foreign.own = false;
  catalog.publish(key_of(0), replica_of(0, 0));
  catalog.publish(key_of(1), replica_of(0, 1));
  catalog.publish(key_of(2), foreign);
  const std::vector<BlockKey> leased{key_of(0)};
  const auto answer = catalog.lookup_and_lease(leased, kAllTiers, kSecond);
  const auto held = catalog.find_and_hold(key_of(1), kAllTiers);
  EXPECT_TRUE(catalog.evict(0, 8).empty());
  catalog.release(answer.lease);
  EXPECT_EQ(catalog.evict(0, 8).size(), 1U);
  catalog.unhold(key_of(1), held.at[0]);
  EXPECT_EQ(catalog.evict(0, 8).size(), 1U);
  EXPECT_EQ(catalog.counts().holds, 0U);
}

TEST(Catalog, ARetractedSlotComesBackOnlyAfterItsLastHold) {
  auto catalog = make();
  catalog.publish(key_of(1), replica_of(0, 3));
  const auto first = catalog.find_and_hold(key_of(1), kAllTiers);
  const auto second = catalog.find_and_hold(key_of(1), kAllTiers);
  std::array<Victim, 4> freed;
  EXPECT_TRUE(catalog.retract(key_of(1), first.at[0]));
  EXPECT_EQ(catalog.find(key_of(1), kAllTiers).count, 0);
  EXPECT_EQ(catalog.take_freed(freed), 0U);
  catalog.unhold(key_of(1), first.at[0]);
  EXPECT_EQ(catalog.take_freed(freed), 0U);
  catalog.unhold(key_of(1), second.at[0]);
  ASSERT_EQ(catalog.take_freed(freed), 1U);
  EXPECT_EQ(freed[0].replica.at.slot, 3U);
  EXPECT_EQ(catalog.take_freed(freed), 0U);
}

TEST(Catalog, ExpiredLeasesAreCountedAndProtectNothing) {
  auto catalog = make();
  catalog.publish(key_of(1), replica_of(0, 3));
  const std::vector<BlockKey> keys{key_of(1)};
  const auto answer = catalog.lookup_and_lease(keys, kAllTiers, 10 * kSecond);
  EXPECT_EQ(catalog.expire_leases(9 * kSecond), 0U);
  EXPECT_EQ(catalog.expire_leases(10 * kSecond), 1U);
  EXPECT_EQ(catalog.counts().leases, 0U);
  EXPECT_EQ(catalog.release(answer.lease), 0U);
  EXPECT_EQ(catalog.evict(0, 1).size(), 1U);
}

TEST(Catalog, WhenTheLeaseTableIsFullLookupsAnswerNothing) {
  auto catalog = make();
  catalog.publish(key_of(1), replica_of(0, 3));
  const std::vector<BlockKey> keys{key_of(1)};
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(catalog.lookup_and_lease(keys, kAllTiers, kSecond).blocks, 1U);
  }
  EXPECT_EQ(catalog.lookup_and_lease(keys, kAllTiers, kSecond).blocks, 0U);
  EXPECT_EQ(catalog.expire_leases(kSecond), 16U);
  EXPECT_EQ(catalog.lookup_and_lease(keys, kAllTiers, 2 * kSecond).blocks, 1U);
}

/// Random operations against a plain model: what is found, held and freed agrees at each step.
TEST(Catalog, AgreesWithAModelUnderRandomOperations) {
  const std::uint64_t seed = 20261130;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  auto catalog = make();
  std::set<std::pair<std::uint64_t, std::uint32_t>> model;  // (key, slot)
  std::vector<std::pair<std::uint64_t, Replica>> holds;
  std::uint64_t retracted = 0, freed = 0, evicted = 0;
  std::uint32_t slots = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto key = random() % 50;
    const auto held = catalog.find(key_of(key), kAllTiers);
    switch (random() % 5) {
      case 0:
        if (held.count == 0) {
          EXPECT_TRUE(catalog.publish(key_of(key), replica_of(0, ++slots)));
          model.insert({key, slots});
        }
        break;
      case 1:
        if (held.count > 0) {
          EXPECT_TRUE(catalog.retract(key_of(key), held.at[0]));
          EXPECT_EQ(model.erase({key, held.at[0].at.slot}), 1U);
          ++retracted;
        }
        break;
      case 2: {
        const auto set = catalog.find_and_hold(key_of(key), kAllTiers);
        if (set.count > 0) holds.emplace_back(key, set.at[0]);
        break;
      }
      case 3:
        if (!holds.empty()) {
          const auto at = random() % holds.size();
          catalog.unhold(key_of(holds[at].first), holds[at].second);
          holds.erase(holds.begin() + static_cast<std::ptrdiff_t>(at));
        }
        break;
      default:
        for (const auto& victim : catalog.evict(0, 1)) {
          ++evicted;
          EXPECT_EQ(model.erase({victim.key.low64(), victim.replica.at.slot}), 1U);
          for (const auto& hold : holds) EXPECT_FALSE(hold.second.at == victim.replica.at);
        }
    }
    std::array<Victim, 64> out;
    freed += catalog.take_freed(out);
    ASSERT_EQ(catalog.counts().replicas, model.size());
    ASSERT_EQ(catalog.counts().holds, holds.size());
  }
  for (const auto& hold : holds) catalog.unhold(key_of(hold.first), hold.second);
  std::array<Victim, 64> out;
  for (auto count = catalog.take_freed(out); count > 0; count = catalog.take_freed(out)) {
    freed += count;
  }
  EXPECT_EQ(freed, retracted);
  EXPECT_GT(evicted, 100U);
}

TEST(Catalog, ManyThreadsLeaveNoHoldAndNoLease) {
  auto catalog = Catalog({10'000, 1000, 4, make_lru_order});
  for (std::uint32_t i = 0; i < 200; ++i) catalog.publish(key_of(i), replica_of(0, i));
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&catalog, thread] {
      std::mt19937_64 random(thread);
      for (int i = 0; i < 5000; ++i) {
        const std::vector<BlockKey> keys{key_of(random() % 200), key_of(random() % 200)};
        const auto answer = catalog.lookup_and_lease(keys, kAllTiers, kSecond);
        const auto set = catalog.find_and_hold(keys[0], kAllTiers);
        for (const auto& victim : catalog.evict(0, 1)) {
          catalog.publish(victim.key, victim.replica);
        }
        for (const auto& replica : set.all()) catalog.unhold(keys[0], replica);
        catalog.release(answer.lease);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto counts = catalog.counts();
  EXPECT_EQ(counts.holds, 0U);
  EXPECT_EQ(counts.leases, 0U);
  EXPECT_EQ(counts.leased_blocks, 0U);
  EXPECT_EQ(counts.replicas, 200U);
  EXPECT_EQ(catalog.evict(0, 1000).size(), 200U);  // nothing is still thought to be leased
}

}  // namespace
}  // namespace kvstream
