#include "replay/workload.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "core/keys.hpp"
#include "replay/random.hpp"

namespace kvstream {
namespace {

const BlockKey kNamespace = namespace_key(Namespace{});

WorkloadRequest asks(std::vector<TokenRun> prompt) {
  WorkloadRequest request;
  for (const auto& run : prompt) request.input_tokens += run.count;
  request.prompt = std::move(prompt);
  return request;
}

std::vector<TraceRequest> cut(const Workload& workload, std::uint32_t block_tokens,
                              Tail tail = Tail::kKeep) {
  return make_requests(workload, {block_tokens, 131'072, 1.0 / 256}, tail, kNamespace);
}

TEST(Workload, BlocksOfAWholeIdHaveTheKeysThatPutKeysGives) {
  Workload workload;
  workload.naming = Naming::kWholePrefix;
  workload.content_tokens = 512;
  workload.requests = {asks({{7, 0, 512}, {8, 0, 512}, {9, 0, 76}}), asks({{7, 0, 512}})};
  const auto requests = cut(workload, 512);
  const BlockShape shape{512, 131'072, 1.0 / 256};
  TraceRequest expected;
  expected.input_tokens = 1100;
  put_keys(expected, kNamespace, shape, {7, 8, 9});
  EXPECT_EQ(requests[0].keys, expected.keys);
  EXPECT_EQ(requests[0].sizes_bytes, expected.sizes_bytes);
  EXPECT_EQ(requests[0].keys[1], external_key(kNamespace, 8));
  EXPECT_EQ(requests[1].keys[0], requests[0].keys[0]);
}

TEST(Workload, KeysDoNotDependOnHowAPromptIsCutIntoRuns) {
  Workload workload;
  workload.requests = {asks({{5, 0, 300}, {6, 10, 200}}),
                       asks({{5, 0, 100}, {5, 100, 1}, {5, 101, 199}, {6, 10, 0}, {6, 10, 200}})};
  for (const std::uint32_t block_tokens : {16U, 64U, 256U, 512U, 1000U}) {
    const auto requests = cut(workload, block_tokens);
    EXPECT_EQ(requests[0].keys, requests[1].keys) << block_tokens;
  }
}

TEST(Workload, ABlockBehindOtherTokensHasAnotherKeyOnlyInAChain) {
  Workload workload;
  workload.requests = {asks({{1, 0, 64}, {2, 0, 64}}), asks({{3, 0, 64}, {2, 0, 64}})};
  workload.content_tokens = 64;
  auto requests = cut(workload, 64);
  EXPECT_NE(requests[0].keys[1], requests[1].keys[1]);
  workload.naming = Naming::kWholePrefix;
  requests = cut(workload, 64);
  EXPECT_EQ(requests[0].keys[1], requests[1].keys[1]);
}

TEST(Workload, TheTailIsABlockOfItsOwnOrNoBlock) {
  Workload workload;
  workload.requests = {asks({{1, 0, 130}}), asks({{1, 0, 128}}), asks({{1, 0, 5}})};
  const auto kept = cut(workload, 64);
  EXPECT_EQ(kept[0].sizes_bytes, (std::vector<std::uint32_t>{32'768, 32'768, 1024}));
  EXPECT_EQ(kept[1].keys.size(), 2U);
  EXPECT_EQ(kept[2].keys.size(), 1U);
  const auto dropped = cut(workload, 64, Tail::kDrop);
  EXPECT_EQ(dropped[0].keys, kept[1].keys);
  EXPECT_EQ(dropped[0].keys.size(), dropped[0].sizes_bytes.size());
  EXPECT_TRUE(dropped[2].keys.empty());
  EXPECT_EQ(dropped[2].input_tokens, 5U);
}

/// The tokens of a prompt one by one.
std::vector<std::pair<std::uint64_t, std::uint32_t>> spelled(const WorkloadRequest& request) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> tokens;
  for (const auto& run : request.prompt) {
    for (std::uint32_t i = 0; i < run.count; ++i) tokens.emplace_back(run.stream, run.first + i);
  }
  return tokens;
}

TEST(Workload, TwoBlocksShareAKeyIfAndOnlyIfAllTokensUpToTheirEndsAreEqual) {
  const std::uint64_t seeds = std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 3000 : 20;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Random random(seed);
    Workload workload;
    for (int i = 0; i < 12; ++i) {
      std::vector<TokenRun> prompt;
      for (std::uint64_t runs = random.between(1, 6); runs > 0; --runs) {
        prompt.push_back({random.between(1, 2), static_cast<std::uint32_t>(random.between(0, 1)),
                          static_cast<std::uint32_t>(random.between(1, 9))});
      }
      workload.requests.push_back(asks(std::move(prompt)));
    }
    const auto requests = cut(workload, 4);
    std::map<BlockKey, std::vector<std::pair<std::uint64_t, std::uint32_t>>> prefix_of;
    std::map<std::vector<std::pair<std::uint64_t, std::uint32_t>>, BlockKey> key_of;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto tokens = spelled(workload.requests[i]);
      for (std::size_t b = 0; b < requests[i].keys.size(); ++b) {
        const auto prefix = std::vector(
            tokens.begin(),
            tokens.begin() + static_cast<std::ptrdiff_t>(std::min(tokens.size(), 4 * (b + 1))));
        const BlockKey& key = requests[i].keys[b];
        EXPECT_EQ(prefix_of.try_emplace(key, prefix).first->second, prefix) << "seed " << seed;
        EXPECT_EQ(key_of.try_emplace(prefix, key).first->second, key) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace kvstream
