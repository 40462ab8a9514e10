#include "replay/prefill.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>

#include "core/keys.hpp"
#include "replay/generator.hpp"

namespace kvstream {
namespace {

const BlockKey kNamespace = namespace_key(Namespace{});
const BlockShape kShape{1, 4096, 1.0};

TraceRequest asks(std::vector<std::uint64_t> ids) {
  TraceRequest request;
  request.input_tokens = static_cast<std::uint32_t>(ids.size());
  put_keys(request, kNamespace, kShape, ids);
  return request;
}

std::vector<std::uint64_t> ids_of(const std::vector<BlockPlace>& places, std::uint64_t mask) {
  std::map<BlockKey, std::uint64_t> names;
  for (std::uint64_t id = 0; id < 100; ++id) names[external_key(kNamespace, id)] = id;
  std::vector<std::uint64_t> ids;
  for (const auto& place : places) {
    if ((place.tiers & mask) != 0) ids.push_back(names.at(place.key));
  }
  return ids;
}

std::vector<TraceRequest> dealt(std::vector<TraceRequest> requests, std::uint32_t ranks) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].rank = static_cast<std::uint32_t>(i % ranks);
  }
  return requests;
}

PrefillProblem problem_of(const std::vector<TraceRequest>& requests, std::uint32_t ranks,
                          std::vector<PrefillTier> tiers, Replication replication) {
  return {requests, std::vector<std::uint32_t>(ranks, 0), std::move(tiers), replication};
}

TEST(Prefill, LeavesTheYoungestBlocksThatFit) {
  const std::vector<TraceRequest> requests{asks({1, 2}), asks({3}), asks({1}), asks({4})};
  const auto answer = simulate_prefill(
      problem_of(requests, 1, {{Visibility::kNode, true, 1, {3}}}, Replication::kOne));
  // 2 is the oldest: 1 was used again by the third request.
  EXPECT_EQ(ids_of(answer.of_rank[0], 1), (std::vector<std::uint64_t>{3, 1, 4}));
  EXPECT_EQ(answer.distinct_blocks, 4U);
}

TEST(Prefill, ARequestWritesEverythingBehindItsFirstHole) {
  const std::vector<TraceRequest> requests{asks({1, 2, 3}), asks({5, 6}), asks({1, 2, 3})};
  const auto answer = simulate_prefill(
      problem_of(requests, 1, {{Visibility::kNode, true, 1, {3}}}, Replication::kOne));
  // The second request pushed 1 and 2 out; the third finds a hole at once and writes all three.
  EXPECT_EQ(ids_of(answer.of_rank[0], 1), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(Prefill, AnotherRanksCopyOnTheNodeIsNotWrittenTwice) {
  const auto requests = dealt({asks({1, 2}), asks({1, 2})}, 2);
  const auto shared = simulate_prefill(
      problem_of(requests, 2, {{Visibility::kNode, true, 1, {9, 9}}}, Replication::kOne));
  EXPECT_EQ(shared.of_rank[0].size(), 2U);
  EXPECT_EQ(shared.of_rank[1].size(), 0U);
  const auto apart = simulate_prefill(
      problem_of(requests, 2, {{Visibility::kRank, true, 1, {9, 9}}}, Replication::kOne));
  EXPECT_EQ(apart.of_rank[1].size(), 2U);
}

TEST(Prefill, RanksOfTwoNodesShareOnlyWhatTheWholeJobSees) {
  const auto requests = dealt({asks({1}), asks({1})}, 2);
  PrefillProblem problem = problem_of(
      requests, 2, {{Visibility::kNode, true, 1, {9, 9}}, {Visibility::kJob, true, 1, {9, 9}}},
      Replication::kAll);
  problem.node_of_rank = {0, 1};
  const auto answer = simulate_prefill(problem);
  EXPECT_EQ(answer.of_rank[0].size(), 1U);
  EXPECT_EQ(answer.of_rank[0][0].tiers, 3U);
  // Rank 1 hit it on the PFS and had nothing to write.
  EXPECT_EQ(answer.of_rank[1].size(), 0U);
}

TEST(Prefill, OneSpreadsByWriteSpeedAndAllPutsACopyEverywhere) {
  std::vector<TraceRequest> requests;
  for (std::uint64_t id = 0; id < 90; ++id) requests.push_back(asks({id}));
  const std::vector<PrefillTier> tiers{{Visibility::kRank, false, 1, {100}},
                                       {Visibility::kNode, true, 2e8, {100}},
                                       {Visibility::kJob, true, 1e8, {100}}};
  const auto one = simulate_prefill(problem_of(requests, 1, tiers, Replication::kOne));
  EXPECT_EQ(ids_of(one.of_rank[0], 1).size(), 90U);
  EXPECT_EQ(ids_of(one.of_rank[0], 2).size(), 60U);
  EXPECT_EQ(ids_of(one.of_rank[0], 4).size(), 30U);
  const auto all = simulate_prefill(problem_of(requests, 1, tiers, Replication::kAll));
  for (const auto& place : all.of_rank[0]) EXPECT_EQ(place.tiers, 7U);
  const auto none = simulate_prefill(problem_of(requests, 1, tiers, Replication::kNone));
  EXPECT_TRUE(none.of_rank[0].empty());
}

TEST(Prefill, NoRankOwnsMoreThanItsSlotsWhateverIsAsked) {
  const auto made =
      generate_documents({.documents = 20, .requests = 200}, {512, 131'072, 1.0 / 256}, kNamespace);
  ASSERT_TRUE(made);
  const auto requests = dealt(*made, 3);
  const auto answer = simulate_prefill(problem_of(
      requests, 3,
      {{Visibility::kRank, false, 1, {10, 11, 12}}, {Visibility::kJob, true, 1, {100, 0, 50}}},
      Replication::kAll));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    std::set<BlockKey> keys;
    std::size_t host = 0, pfs = 0;
    for (const auto& place : answer.of_rank[rank]) {
      EXPECT_TRUE(keys.insert(place.key).second);
      host += place.tiers & 1U;
      pfs += place.tiers >> 1U & 1U;
    }
    EXPECT_EQ(host, 10 + rank);
    EXPECT_LE(pfs, (std::array<std::size_t, 3>{100, 0, 50})[rank]);
  }
}

}  // namespace
}  // namespace kvstream
