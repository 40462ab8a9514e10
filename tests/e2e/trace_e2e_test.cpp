// `kvstream trace` as a user runs it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/program.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream {
namespace {

using nlohmann::json;
using test::run_kvstream;

json described(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "trace");
  arguments.insert(arguments.end(), {"--json", "-"});
  const auto ran = run_kvstream(arguments);
  EXPECT_EQ(ran.code, 0) << ran.err;
  const json report = json::parse(ran.out, nullptr, false);
  EXPECT_TRUE(report.is_object()) << ran.out;
  return report;
}

TEST(TraceEndToEnd, AListThatWasWrittenReadsBackTheSame) {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/cut.jsonl.zst";
  const auto made =
      described({"agent", "--requests", "600", "--open-conversations", "8", "--cut-sharing", "0.3",
                 "--arrivals", "gamma", "--cv", "2", "--rate", "4", "--out", path});
  auto again = described({path, "--arrivals", "trace"});
  EXPECT_NEAR(made.at("sharing").get<double>(), 0.3, 0.002);
  EXPECT_NEAR(made.at("arrival_rate_per_s").get<double>(), 4, 1e-6);
  for (const char* field : {"requests", "conversations", "prompt_tokens", "blocks",
                            "distinct_blocks", "sharing", "reuse_distance_blocks", "arrival_cv"}) {
    EXPECT_EQ(again.at(field), made.at(field)) << field;
  }
}

TEST(TraceEndToEnd, SkippedRequestsAndTheTailAreLeftOut) {
  const auto all = described({"documents", "--requests", "50", "--tail", "keep"});
  const auto rest = described({"documents", "--skip", "20", "--requests", "30", "--tail", "drop"});
  EXPECT_EQ(all.at("requests"), 50);
  EXPECT_EQ(rest.at("requests"), 30);
  EXPECT_LT(rest.at("blocks").get<double>(), 0.6 * all.at("blocks").get<double>());
}

TEST(TraceEndToEnd, TheTextIsForPeopleAndBadInputIsOneLineAndCodeTwo) {
  const auto ran = run_kvstream({"trace", "loogle"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.out.find("6448"), std::string::npos) << ran.out;
  for (const auto& [arguments, part] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"trace", "/no/such/trace"}, "/no/such/trace"},
           {{"trace", "agent", "--arrivals", "trace"}, "no arrivals of its own"},
           {{"trace", "agent", "--arrivals", "sometimes"}, "sometimes"},
           {{"trace", "documents", "--cut-sharing", "0.99"}, "documents shares"}}) {
    const auto bad = run_kvstream(arguments);
    EXPECT_EQ(bad.code, 2);
    EXPECT_EQ(test::count_lines(bad.err), 1U) << bad.err;
    EXPECT_NE(bad.err.find(part), std::string::npos) << bad.err;
  }
}

}  // namespace
}  // namespace kvstream
