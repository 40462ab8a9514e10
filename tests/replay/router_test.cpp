#include "replay/router.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/keys.hpp"
#include "replay/generator.hpp"

namespace kvstream {
namespace {

const BlockKey kNamespace = namespace_key(Namespace{});

std::vector<TraceRequest> agent_requests() {
  const auto workload = agent_workload({.requests = 800, .open_conversations = 24});
  return make_requests(*workload, {}, Tail::kKeep, kNamespace);
}

TraceRequest asks(std::vector<std::uint64_t> ids, std::uint32_t tokens, Nanos arrival_ns) {
  TraceRequest request;
  request.arrival_ns = arrival_ns;
  request.input_tokens = tokens;
  for (const auto id : ids) request.keys.push_back(external_key(kNamespace, id));
  return request;
}

TEST(Router, RoundRobinDealsInTurn) {
  const auto ranks = route(agent_requests(), 3, {});
  for (std::size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(ranks[i], i % 3);
}

TEST(Router, OneRankGetsAllAndEveryRankIsInRange) {
  const auto requests = agent_requests();
  for (const Router router : {Router::kRoundRobin, Router::kPrefix, Router::kLeastLoaded}) {
    for (const std::uint32_t rank : route(requests, 1, {router})) EXPECT_EQ(rank, 0U);
    std::set<std::uint32_t> seen;
    for (const std::uint32_t rank : route(requests, 5, {router})) seen.insert(rank);
    EXPECT_EQ(seen, (std::set<std::uint32_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(route(requests, 5, {router}), route(requests, 5, {router}));
  }
}

TEST(Router, TheLeastLoadedRankIsTakenAndLoadsDrainWithTime) {
  const std::vector<TraceRequest> requests{
      asks({}, 1000, 0), asks({}, 100, 0), asks({}, 100, 0), asks({}, 100, 0),
      // All 2,300 tokens over 2 s over 2 ranks: everything before is worked off by now.
      asks({}, 500, 2 * kSecond), asks({}, 500, 2 * kSecond)};
  EXPECT_EQ(route(requests, 2, {Router::kLeastLoaded}),
            (std::vector<std::uint32_t>{0, 1, 1, 1, 0, 1}));
}

TEST(Router, APrefixGoesToTheRankThatHadTheLongestPartOfIt) {
  const RouterOptions prefix{Router::kPrefix, 1.5, 100};
  const std::vector<TraceRequest> requests{asks({1, 2}, 10, 0), asks({5, 6}, 10, 0),
                                           asks({5, 6, 7}, 10, 0), asks({1, 2, 3}, 10, 0),
                                           asks({5, 6, 7, 8}, 10, 0)};
  EXPECT_EQ(route(requests, 2, prefix), (std::vector<std::uint32_t>{0, 1, 1, 0, 1}));
}

TEST(Router, AnOverloadedRankLosesItsPrefixes) {
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(asks({1}, 1000, 0));
  const auto strict = route(requests, 2, {Router::kPrefix, 1.0, 2.0});
  EXPECT_EQ(std::set<std::uint32_t>(strict.begin(), strict.end()).size(), 2U);
  const auto loose = route(requests, 2, {Router::kPrefix, 1.0, 1000});
  EXPECT_EQ(std::set<std::uint32_t>(loose.begin(), loose.end()).size(), 1U);
}

TEST(Router, PrefixAffinityKeepsConversationsTogetherBetterThanTheOthers) {
  const auto requests = agent_requests();
  const auto stays = [&](Router router) {
    const auto ranks = route(requests, 4, {router});
    std::map<std::uint64_t, std::uint32_t> last;
    std::uint32_t same = 0, turns = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto [at, fresh] = last.try_emplace(requests[i].conversation, ranks[i]);
      turns += fresh ? 0 : 1;
      same += !fresh && at->second == ranks[i] ? 1 : 0;
      at->second = ranks[i];
    }
    return static_cast<double>(same) / turns;
  };
  EXPECT_GT(stays(Router::kPrefix), 0.7);
  EXPECT_LT(stays(Router::kRoundRobin), 0.4);
  EXPECT_LT(stays(Router::kLeastLoaded), 0.4);
}

TEST(Router, NoRankGetsMuchMoreThanItsShareOfTokens) {
  const auto requests = agent_requests();
  for (const Router router : {Router::kPrefix, Router::kLeastLoaded}) {
    const auto ranks = route(requests, 4, {router});
    std::vector<double> tokens(4, 0);
    double all = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      tokens[ranks[i]] += requests[i].input_tokens;
      all += requests[i].input_tokens;
    }
    for (const double of_rank : tokens) EXPECT_NEAR(of_rank / all, 0.25, 0.05);
  }
}

}  // namespace
}  // namespace kvstream
