#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/keys.hpp"
#include "replay/generator.hpp"
#include "replay/sharing.hpp"

namespace kvstream {
namespace {

double sharing_of(const Workload& workload, std::uint32_t block_tokens) {
  const BlockShape shape{block_tokens, 131'072, 1};
  return measure_sharing(make_requests(workload, shape, Tail::kDrop, {}), shape);
}

/// Lengths of the documents, by the stream that a prompt begins with.
std::map<std::uint64_t, std::uint32_t> documents_of(const Workload& workload) {
  std::map<std::uint64_t, std::uint32_t> lengths;
  for (const auto& request : workload.requests) {
    lengths[request.prompt[0].stream] = request.prompt[0].count;
  }
  return lengths;
}

TEST(Loogle, HasThePublishedDocumentsQuestionsAndMeanLengths) {
  for (const std::uint64_t seed : {1U, 2U}) {
    const auto workload = loogle_workload({DocumentOrder::kByDocument, seed});
    EXPECT_EQ(workload.requests.size(), 6448U);
    EXPECT_EQ(documents_of(workload).size(), 776U);
    // By document, arxiv comes first (516), then wikipedia (105), then scripts (155).
    std::vector<std::uint64_t> order;
    for (const auto& request : workload.requests) {
      const std::uint64_t document = request.prompt[0].stream;
      if (order.empty() || order.back() != document) order.push_back(document);
    }
    ASSERT_EQ(order.size(), 776U);
    const auto lengths = documents_of(workload);
    const auto mean = [&](std::size_t from, std::size_t to) {
      double sum = 0;
      for (std::size_t i = from; i < to; ++i) sum += lengths.at(order[i]);
      return sum / static_cast<double>(to - from);
    };
    EXPECT_NEAR(mean(0, 516), 20'887, 1);
    EXPECT_NEAR(mean(516, 621), 21'017, 1);
    EXPECT_NEAR(mean(621, 776), 36'412, 1);
  }
}

TEST(Loogle, LengthsSpreadAsStated) {
  const auto lengths = documents_of(loogle_workload({}));
  // Log-normal within a source; over all sources the means differ too.
  double sum = 0, squares = 0;
  for (const auto& [stream, length] : lengths) {
    sum += length;
    squares += static_cast<double>(length) * length;
  }
  const double n = static_cast<double>(lengths.size()), mean = sum / n;
  const double cv = std::sqrt(squares / n - mean * mean) / mean;
  EXPECT_GT(cv, 0.3);
  EXPECT_LT(cv, 0.5);
}

TEST(Loogle, ShuffledAsksTheSameQuestionsInAnotherOrder) {
  const auto by_document = loogle_workload({DocumentOrder::kByDocument, 1});
  const auto shuffled = loogle_workload({DocumentOrder::kShuffled, 1});
  const auto counts = [](const Workload& workload) {
    std::map<std::uint64_t, int> questions;
    for (const auto& request : workload.requests) ++questions[request.prompt[0].stream];
    return questions;
  };
  EXPECT_EQ(counts(shuffled), counts(by_document));
  int neighbours = 0;
  for (std::size_t i = 1; i < shuffled.requests.size(); ++i) {
    neighbours +=
        shuffled.requests[i].prompt[0].stream == shuffled.requests[i - 1].prompt[0].stream;
  }
  EXPECT_LT(neighbours, 100);
  EXPECT_EQ(loogle_workload({}), loogle_workload({}));
  const auto documents = documents_of(shuffled);
  for (const auto& [stream, length] : documents_of(loogle_workload({.seed = 2}))) {
    EXPECT_FALSE(documents.contains(stream));
  }
}

TEST(Agent, SharesMoreThanNinetyTwoPercentAsItComes) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const auto workload = agent_workload({.seed = seed});
    ASSERT_TRUE(workload);
    EXPECT_EQ(workload->requests.size(), 4000U);
    EXPECT_GE(sharing_of(*workload, 64), 0.95) << "seed " << seed;
    EXPECT_GE(sharing_of(*workload, 512), 0.92) << "seed " << seed;
  }
}

TEST(Agent, MeetsTheSharingThatIsWanted) {
  const auto whole = agent_workload({.requests = 2000});
  for (const double target : {0.0, 0.25, 0.5, 0.75, 0.9}) {
    const auto workload = agent_workload({.requests = 2000, .sharing = target});
    ASSERT_TRUE(workload) << workload.error().message();
    EXPECT_NEAR(sharing_of(*workload, 64), target, 0.005);
    ASSERT_EQ(workload->requests.size(), whole->requests.size());
    for (std::size_t i = 0; i < whole->requests.size(); ++i) {
      EXPECT_EQ(workload->requests[i].input_tokens, whole->requests[i].input_tokens);
    }
  }
  const auto top = agent_workload({.sharing = 0.95});
  ASSERT_TRUE(top) << top.error().message();
  EXPECT_NEAR(sharing_of(*top, 64), 0.95, 0.005);
}

TEST(Agent, MoreSharingThanAFewRequestsHaveIsAnError) {
  const auto workload = agent_workload({.requests = 50, .sharing = 0.95});
  ASSERT_FALSE(workload);
  EXPECT_NE(workload.error().message().find("more requests"), std::string::npos);
  EXPECT_FALSE(agent_workload({.requests = 0}));
}

TEST(Agent, EachTurnRepeatsThePromptBeforeItAndAddsTheOutput) {
  const auto workload = agent_workload({.requests = 1000, .open_conversations = 8});
  std::map<std::uint64_t, const WorkloadRequest*> last;
  for (const auto& request : workload->requests) {
    EXPECT_LE(request.input_tokens, 131'072U);
    const auto*& before = last[request.conversation];
    if (before != nullptr) {
      EXPECT_EQ(request.prompt[0], before->prompt[0]);
      EXPECT_EQ(request.prompt[1].stream, before->prompt[1].stream);
      EXPECT_GT(request.input_tokens, before->input_tokens + before->output_tokens);
    }
    before = &request;
  }
  EXPECT_GT(last.size(), 8U);
}

TEST(Agent, LengthsAreNearThePublishedMedians) {
  const auto workload = agent_workload({});
  std::vector<std::uint32_t> outputs, firsts;
  std::set<std::uint64_t> seen;
  for (const auto& request : workload->requests) {
    outputs.push_back(request.output_tokens);
    if (seen.insert(request.conversation).second) firsts.push_back(request.input_tokens);
  }
  std::sort(outputs.begin(), outputs.end());
  std::sort(firsts.begin(), firsts.end());
  EXPECT_NEAR(outputs[outputs.size() / 2], 218, 20);
  EXPECT_NEAR(firsts[firsts.size() / 2], 27'600, 4000);
}

}  // namespace
}  // namespace kvstream
