#include "replay/sharing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "core/keys.hpp"
#include "replay/generator.hpp"
#include "replay/random.hpp"

namespace kvstream {
namespace {

const BlockKey kNamespace = namespace_key(Namespace{});

double sharing_of(const Workload& workload, std::uint32_t block_tokens, Tail tail = Tail::kKeep) {
  const BlockShape shape{block_tokens, 131'072, 1.0 / 256};
  return measure_sharing(make_requests(workload, shape, tail, kNamespace), shape);
}

Workload random_workload(std::uint64_t seed) {
  Random random(seed);
  Workload workload;
  workload.name = "random";
  for (int i = 0; i < 30; ++i) {
    WorkloadRequest request;
    for (std::uint64_t runs = random.between(0, 4); runs > 0; --runs) {
      request.prompt.push_back(
          {random.between(1, 2), 0, static_cast<std::uint32_t>(random.between(1, 20))});
      request.input_tokens += request.prompt.back().count;
    }
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

/// Compares each prefix with every earlier prompt, token by token; no keys.
double sharing_by_brute_force(const Workload& workload, std::uint32_t block_tokens) {
  std::vector<std::vector<std::pair<std::uint64_t, std::uint32_t>>> prompts;
  std::uint64_t shared = 0, all = 0;
  for (const auto& request : workload.requests) {
    auto& tokens = prompts.emplace_back();
    for (const auto& run : request.prompt) {
      for (std::uint32_t i = 0; i < run.count; ++i) tokens.emplace_back(run.stream, run.first + i);
    }
    all += tokens.size();
    for (std::size_t begin = 0; begin < tokens.size(); begin += block_tokens) {
      const std::size_t end = std::min(tokens.size(), begin + block_tokens);
      bool found = false;
      for (std::size_t earlier = 0; earlier + 1 < prompts.size() && !found; ++earlier) {
        const auto& other = prompts[earlier];
        // A partial last block is another block than a full one that begins with it.
        const std::size_t other_end = std::min(other.size(), begin + block_tokens);
        found = other_end == end &&
                std::equal(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end),
                           other.begin());
      }
      if (found) shared += end - begin;
    }
  }
  return all == 0 ? 0 : static_cast<double>(shared) / static_cast<double>(all);
}

TEST(Sharing, IsWhatComparingEveryPairOfPromptsGives) {
  const std::uint64_t seeds = std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 3000 : 40;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto workload = random_workload(seed);
    for (const std::uint32_t block_tokens : {1U, 3U, 8U}) {
      EXPECT_DOUBLE_EQ(sharing_of(workload, block_tokens),
                       sharing_by_brute_force(workload, block_tokens))
          << "seed " << seed << ", blocks of " << block_tokens;
    }
  }
}

TEST(Sharing, OfNothingIsNothing) { EXPECT_EQ(measure_sharing({}, {}), 0.0); }

TEST(Sharing, TheTailCountsAsTokensThatNobodyHas) {
  Workload workload;
  WorkloadRequest request;
  request.input_tokens = 100;
  request.prompt = {{1, 0, 100}};
  workload.requests = {request, request};
  EXPECT_DOUBLE_EQ(sharing_of(workload, 64), 0.5);
  EXPECT_DOUBLE_EQ(sharing_of(workload, 64, Tail::kDrop), 64.0 / 200);
}

void expect_same_but_for_text(const Workload& a, const Workload& b) {
  ASSERT_EQ(a.requests.size(), b.requests.size());
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    EXPECT_EQ(a.requests[i].arrival_ns, b.requests[i].arrival_ns);
    EXPECT_EQ(a.requests[i].input_tokens, b.requests[i].input_tokens);
    EXPECT_EQ(a.requests[i].output_tokens, b.requests[i].output_tokens);
    EXPECT_EQ(a.requests[i].conversation, b.requests[i].conversation);
    std::uint64_t sum = 0;
    for (const auto& run : b.requests[i].prompt) sum += run.count;
    EXPECT_EQ(sum, b.requests[i].input_tokens);
  }
}

TEST(CutSharing, HitsItsTargetWithinTwoTenthsOfAPointAndLeavesAllElse) {
  const auto agent = agent_workload({.requests = 500, .open_conversations = 8});
  const auto documents = documents_workload({.documents = 40, .requests = 400});
  for (const auto* workload : {&*agent, &*documents}) {
    for (const double target : {0.0, 0.04, 0.3, 0.7}) {
      for (const std::uint64_t seed : {1U, 2U, 3U}) {
        for (const std::uint32_t block_tokens : {64U, 512U}) {
          const Tail tail = block_tokens == 64 ? Tail::kDrop : Tail::kKeep;
          CutOptions options;
          options.target = target;
          options.seed = seed;
          options.block_tokens = block_tokens;
          options.tail = tail;
          const auto cut = cut_sharing(*workload, options);
          ASSERT_TRUE(cut) << cut.error().message();
          EXPECT_NEAR(sharing_of(*cut, block_tokens, tail), target, 0.002)
              << workload->name << " seed " << seed;
          if (seed == 1) expect_same_but_for_text(*workload, *cut);
        }
      }
    }
  }
}

TEST(CutSharing, WorksOnIdsThatStandForTheirPrefix) {
  Random random(7);
  Workload workload;
  workload.naming = Naming::kWholePrefix;
  workload.content_tokens = 512;
  for (std::uint64_t i = 0; i < 400; ++i) {
    WorkloadRequest request;
    const std::uint64_t family = random.between(1, 10);
    for (std::uint64_t b = 0; b < 20; ++b) {
      request.prompt.push_back({b < 15 ? family * 100 + b : 1'000'000 + i * 100 + b, 0, 512});
    }
    request.input_tokens = 20 * 512;
    workload.requests.push_back(std::move(request));
  }
  EXPECT_NEAR(sharing_of(workload, 512), 0.75 * 390 / 400, 1e-9);
  CutOptions options;
  options.target = 0.2;
  const auto cut = cut_sharing(workload, options);
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_NEAR(sharing_of(*cut, 512), 0.2, 0.002);
}

TEST(CutSharing, AnotherSeedCutsElsewhereAndTheSameSeedAlike) {
  const auto workload = documents_workload({.documents = 20, .requests = 200});
  CutOptions options;
  options.target = 0.3;
  options.seed = 5;
  const auto a = cut_sharing(*workload, options), b = cut_sharing(*workload, options);
  EXPECT_EQ(*a, *b);
  options.seed = 6;
  EXPECT_NE(*cut_sharing(*workload, options), *a);
}

TEST(CutSharing, MoreThanTheListSharesIsAnErrorThatSaysWhatItShares) {
  const auto workload = documents_workload({.documents = 20, .requests = 40});
  CutOptions options;
  options.target = 0.9;
  const auto cut = cut_sharing(*workload, options);
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message().find("documents shares 0.4"), std::string::npos)
      << cut.error().message();
}

TEST(CutSharing, AListTooShortToComeNearIsAnError) {
  Workload workload;
  WorkloadRequest request;
  request.input_tokens = 1024;
  request.prompt = {{1, 0, 1024}};
  workload.requests = {request, request};
  CutOptions options;
  options.target = 0.1;  // 0, 0.25 and 0.5 are possible
  EXPECT_FALSE(cut_sharing(workload, options));
}

}  // namespace
}  // namespace kvstream
