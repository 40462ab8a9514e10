#include "step/plan.hpp"

#include <gtest/gtest.h>

#include <map>

#include "step/step_rig.hpp"

namespace kvstream {
namespace {

using rig::key_of;
constexpr std::uint32_t kBytes = 64;

class Table final : public ReplicaFinder {
 public:
  void add(std::uint64_t number, std::initializer_list<int> tiers, std::uint32_t size = kBytes) {
    ReplicaSet& set = sets_[key_of(number)];
    for (int tier : tiers) {
      Replica& replica = set.at[set.count++];
      replica.tier = static_cast<std::uint8_t>(tier);
      replica.size_bytes = size;
    }
  }
  ReplicaSet find_and_hold(const BlockKey& key) override {
    ++asked[key];
    const auto at = sets_.find(key);
    return at == sets_.end() ? ReplicaSet{} : at->second;
  }
  std::map<BlockKey, int> asked;

 private:
  std::map<BlockKey, ReplicaSet> sets_;
};

using Numbers = std::vector<std::vector<std::uint64_t>>;

/// Owns what a StepRequest points to.
struct Request {
  explicit Request(const Numbers& numbers) {
    std::size_t count = 0;
    for (const auto& request : numbers) count += request.size();
    memory.resize(count * kBytes);
    spans.reserve(2 * count);
    blocks.resize(numbers.size());
    std::size_t at = 0;
    for (std::size_t r = 0; r < numbers.size(); ++r)
      for (std::uint64_t number : numbers[r]) {
        spans.push_back({memory.data() + at, kBytes / 4});
        spans.push_back({memory.data() + at + kBytes / 4, kBytes - kBytes / 4});
        at += kBytes;
        blocks[r].push_back({key_of(number), kBytes, {&spans[spans.size() - 2], 2}});
      }
    for (const auto& request : blocks) loads.push_back({request, {}});
    step.requests = loads;
  }
  std::vector<std::byte> memory;
  std::vector<Span> spans;
  std::vector<std::vector<BlockRequest>> blocks;
  std::vector<LoadRequest> loads;
  StepRequest step;
};

TEST(Plan, CutsEachRequestAtItsFirstHole) {
  Table table;
  for (std::uint64_t n : {1, 2, 4, 5, 6}) table.add(n, {0});
  Request request(Numbers{{1, 2, 3, 4}, {5, 6}, {3, 5}});
  const auto plan = plan_step(request.step, table);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->blocks.size(), 4U);
  EXPECT_EQ(plan->requests[0].first_miss, 2U);
  EXPECT_EQ(plan->requests[0].count_blocks, 4U);
  EXPECT_EQ(plan->requests[0].miss_reason, MissReason::kNotFound);
  EXPECT_EQ(plan->requests[1].first_miss, 2U);
  EXPECT_EQ(plan->requests[2].first_miss, 0U);
  EXPECT_EQ(table.asked.count(key_of(4)), 0U) << "nothing is held behind a hole";
  EXPECT_EQ(table.asked[key_of(3)], 1) << "a key is looked up once";
}

TEST(Plan, NamesTheClientThatAsked) {
  Table table;
  table.add(1, {0});
  Request request(Numbers{{1}});
  request.step.client = 7;
  const auto plan = plan_step(request.step, table);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->client, 7U);
}

TEST(Plan, SaysThatALeasedBlockWasLost) {
  Table table;
  Request request(Numbers{{9}});
  request.loads[0].lease.words = {1, 2};
  request.step.requests = request.loads;
  const auto plan = plan_step(request.step, table);
  EXPECT_EQ(plan->requests[0].miss_reason, MissReason::kSourcesLost);
}

TEST(Plan, ReadsAKeyOnceAndLaysItsDestinationsSideBySide) {
  Table table;
  for (std::uint64_t n : {1, 2, 3}) table.add(n, {0, 2});
  Request request(Numbers{{1, 2}, {1, 3}, {1}});
  const auto plan = plan_step(request.step, table);
  ASSERT_EQ(plan->blocks.size(), 3U);
  const PlannedBlock& block = plan->blocks[0];
  EXPECT_EQ(block.count_destinations, 3U);
  EXPECT_EQ(block.claimable, 0b101U);
  std::uint32_t next = plan->destinations[block.first_destination].first_span;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Destination& to = plan->destinations[block.first_destination + i];
    EXPECT_EQ(to.request, i);
    EXPECT_EQ(to.first_span, next);
    EXPECT_EQ(plan->spans[next].data, request.blocks[i][0].into[0].data);
    next += to.count_spans;
  }
  EXPECT_EQ(plan->blocks[1].request, 0U);
  EXPECT_EQ(plan->blocks[2].order, 2U);
}

TEST(Plan, LetsFourSourcesClaimAndKeepsTheOthersAsSpares) {
  Table table;
  table.add(1, {0, 1, 2, 4, 5, 7});
  Request request(Numbers{{1}});
  const auto plan = plan_step(request.step, table);
  EXPECT_EQ(plan->blocks[0].claimable, 0b10111U);
  EXPECT_EQ(plan->blocks[0].spares, 0b10100000U);
}

TEST(Plan, DoesNotReadACopyOfAnotherSize) {
  Table table;
  table.add(1, {0}, kBytes / 2);
  table.add(1, {1});
  Request request(Numbers{{1}});
  const auto plan = plan_step(request.step, table);
  EXPECT_EQ(plan->blocks[0].claimable, 2U);
  EXPECT_EQ(plan->blocks[0].replicas.count, 2U) << "it is held, so it must be given back";
}

TEST(Plan, RefusesWrongInputBeforeItHoldsAnything) {
  Table table;
  table.add(1, {0});
  {
    Request request(Numbers{{1, 1}});
    request.spans[2].size_bytes += 1;
    const auto plan = plan_step(request.step, table);
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
    EXPECT_NE(plan.error().message().find("block 1 of request 0"), std::string::npos);
  }
  {
    Request request(Numbers{{1}, {1}});
    request.spans[2].size_bytes += 4;
    request.blocks[1][0].size_bytes += 4;
    EXPECT_FALSE(plan_step(request.step, table).has_value());
  }
  {
    Request request(Numbers{{1}});
    std::vector<Span> many(kSpansMax + 1, Span{request.memory.data(), 0});
    many[0].size_bytes = kBytes;
    request.blocks[0][0].into = many;
    EXPECT_FALSE(plan_step(request.step, table).has_value());
  }
  EXPECT_TRUE(table.asked.empty());
}

struct Policies : ::testing::Test {
  /// Requests of five blocks; all on tiers 0 and 1, every third on tier 2 too.
  StepPlan plan_of(std::size_t requests) {
    std::vector<std::vector<std::uint64_t>> numbers;
    Table table;
    std::uint64_t number = 0;
    for (std::size_t r = 0; r < requests; ++r) {
      numbers.emplace_back();
      for (int p = 0; p < 5; ++p, ++number) {
        numbers.back().push_back(number);
        if (number % 3 == 0)
          table.add(number, {0, 1, 2});
        else
          table.add(number, {0, 1});
      }
    }
    Request request(numbers);
    auto plan = plan_step(request.step, table);
    return std::move(*plan);
  }
  static double share(const StepPlan& plan, SourceId source) {
    double count = 0;
    for (const PlannedBlock& block : plan.blocks) count += block.claimable == bit(source);
    return count / static_cast<double>(plan.blocks.size());
  }
  static void expect_one_source_and_spares(const StepPlan& plan) {
    for (std::size_t b = 0; b < plan.blocks.size(); ++b) {
      const PlannedBlock& block = plan.blocks[b];
      EXPECT_EQ(std::popcount(block.claimable), 1);
      EXPECT_EQ(block.claimable | block.spares, b % 3 == 0 ? 7U : 3U);
    }
    EXPECT_FALSE(plan.adaptive);
  }
  std::vector<SourceView> views = std::vector<SourceView>(3);
  Mode mode;
};

TEST_F(Policies, CompletionLeavesTheChoiceToTheClaims) {
  StepPlan plan = plan_of(3);
  apply_policy(plan, mode, views);
  EXPECT_TRUE(plan.adaptive);
  EXPECT_EQ(plan.gate, Gate::kNone);
  EXPECT_EQ(plan.blocks[0].claimable, 7U);
}

TEST_F(Policies, SerialTakesTheFirstTierRequestAfterRequest) {
  StepPlan plan = plan_of(3);
  mode.policy = ReadPolicy::kSerial;
  apply_policy(plan, mode, views);
  expect_one_source_and_spares(plan);
  EXPECT_EQ(share(plan, 0), 1);
  EXPECT_EQ(plan.gate, Gate::kRequest);
  mode.serial_depth = SerialDepth::kBlock;
  apply_policy(plan, mode, views);
  EXPECT_EQ(plan.gate, Gate::kBlock);
}

TEST_F(Policies, PooledTakesTheFirstLiveTierWithoutAGate) {
  StepPlan plan = plan_of(3);
  mode.policy = ReadPolicy::kPooled;
  views[0].live = false;
  apply_policy(plan, mode, views);
  expect_one_source_and_spares(plan);
  EXPECT_EQ(share(plan, 1), 1);
  EXPECT_EQ(plan.gate, Gate::kNone);
}

TEST_F(Policies, StaticFollowsTheNominalRatesWhateverIsMeasured) {
  StepPlan plan = plan_of(60);
  mode.policy = ReadPolicy::kStatic;
  views[0].nominal_rate_bytes_per_ns = 4;
  views[1].nominal_rate_bytes_per_ns = 2;
  views[2].nominal_rate_bytes_per_ns = 0;
  views[0].rate_bytes_per_ns = 0.001;
  apply_policy(plan, mode, views);
  expect_one_source_and_spares(plan);
  EXPECT_NEAR(share(plan, 0), 2.0 / 3, 0.02);
  EXPECT_NEAR(share(plan, 1), 1.0 / 3, 0.02);
}

TEST_F(Policies, ShortestQueueGivesWholeRequestsByQueuedBytes) {
  StepPlan plan = plan_of(4);
  mode.policy = ReadPolicy::kShortestQueue;
  views[0].queued_bytes = 7 * kBytes;
  views[2].queued_bytes = 1'000'000;
  views[0].rate_bytes_per_ns = 1000;  // by bytes it does not matter
  apply_policy(plan, mode, views);
  expect_one_source_and_spares(plan);
  // 7 | 0 -> request 0 to tier 1 (5), request 1 to tier 1 (10), request 2 to tier 0, request 3: 1.
  for (std::size_t b = 0; b < 20; ++b)
    EXPECT_EQ(plan.blocks[b].claimable, b / 5 == 2 ? 1U : 2U) << b;
}

TEST_F(Policies, ShortestQueueByFinishKnowsRatesAndLatencies) {
  StepPlan plan = plan_of(1);
  mode.policy = ReadPolicy::kShortestQueue;
  mode.queue_measure = QueueMeasure::kFinish;
  views[0].queued_bytes = 10 * kBytes;
  views[0].rate_bytes_per_ns = 10;
  views[1].rate_bytes_per_ns = 1;
  views[2].latency_ns = kSecond;
  apply_policy(plan, mode, views);
  EXPECT_EQ(share(plan, 0), 1);
}

TEST_F(Policies, ShortestQueueSendsBlocksThatAreNotThereToTheNextBest) {
  StepPlan plan = plan_of(1);
  mode.policy = ReadPolicy::kShortestQueue;
  views[0].queued_bytes = 100'000;
  views[1].queued_bytes = 50'000;
  apply_policy(plan, mode, views);
  for (std::size_t b = 0; b < 5; ++b)
    EXPECT_EQ(plan.blocks[b].claimable, b % 3 == 0 ? 4U : 2U) << b;
}

}  // namespace
}  // namespace kvstream
