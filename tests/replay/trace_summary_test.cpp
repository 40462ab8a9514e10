#include "replay/trace_summary.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/keys.hpp"
#include "replay/random.hpp"
#include "replay/sharing.hpp"

namespace kvstream {
namespace {

const BlockKey kNamespace = namespace_key(Namespace{});
const BlockShape kShape{10, 100, 1};

TraceRequest asks(std::vector<std::uint64_t> ids, Nanos arrival_ns) {
  TraceRequest request;
  request.arrival_ns = arrival_ns;
  request.input_tokens = static_cast<std::uint32_t>(10 * ids.size());
  request.output_tokens = 3;
  put_keys(request, kNamespace, kShape, ids);
  return request;
}

TEST(TraceSummary, CountsWhatASmallListHolds) {
  const std::vector<TraceRequest> requests{asks({1, 2}, 0), asks({3}, kSecond),
                                           asks({1, 4, 5}, 4 * kSecond)};
  const auto summary = summarize_trace(requests, kShape, true);
  EXPECT_EQ(summary.requests, 3U);
  EXPECT_EQ(summary.prompt_tokens, 60U);
  EXPECT_EQ(summary.output_tokens, 9U);
  EXPECT_EQ(summary.blocks, 6U);
  EXPECT_EQ(summary.distinct_blocks, 5U);
  EXPECT_DOUBLE_EQ(summary.distinct_used_once, 0.8);
  EXPECT_DOUBLE_EQ(summary.sharing, 10.0 / 60);
  EXPECT_DOUBLE_EQ(summary.distinct_represented_b, 5000);
  // Between the two uses of 1 came 3 alone.
  EXPECT_EQ(summary.reuse_distance_blocks.count, 1U);
  EXPECT_DOUBLE_EQ(summary.reuse_distance_blocks.mean, 1);
  EXPECT_DOUBLE_EQ(summary.arrival_rate_per_s, 0.5);
  EXPECT_DOUBLE_EQ(summary.arrival_cv, 0.5);
  EXPECT_EQ(summarize_trace(requests, kShape, false).arrival_rate_per_s, 0);
  EXPECT_EQ(to_json(summary)["distinct_blocks"], 5);
  EXPECT_EQ(summarize_trace({}, kShape, true).requests, 0U);
}

TEST(TraceSummary, ReuseDistancesAreThoseOfCountingOneByOne) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    std::vector<std::vector<std::uint64_t>> lists;
    std::vector<TraceRequest> requests;
    for (int i = 0; i < 40; ++i) {
      std::set<std::uint64_t> ids;
      for (int j = 0; j < 5; ++j) ids.insert(random.between(1, 40));
      lists.emplace_back(ids.begin(), ids.end());
      requests.push_back(asks(lists.back(), 0));
    }
    double sum = 0;
    std::uint64_t reuses = 0;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      for (const std::uint64_t id : lists[i]) {
        std::set<std::uint64_t> between;
        for (std::size_t j = i; j-- > 0;) {
          if (std::count(lists[j].begin(), lists[j].end(), id) > 0) {
            // Blocks of that request count when they were used again since.
            sum += static_cast<double>(between.size());
            ++reuses;
            break;
          }
          between.insert(lists[j].begin(), lists[j].end());
        }
      }
    }
    const auto summary = summarize_trace(requests, kShape, false);
    EXPECT_EQ(summary.reuse_distance_blocks.count, reuses) << "seed " << seed;
    EXPECT_NEAR(summary.reuse_distance_blocks.mean, sum / static_cast<double>(reuses), 1e-9)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace kvstream
