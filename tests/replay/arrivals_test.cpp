#include "replay/arrivals.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "replay/generator.hpp"

namespace kvstream {
namespace {

Workload list_of(std::size_t count) {
  Workload workload;
  workload.name = "list";
  workload.requests.resize(count);
  return workload;
}

double cv_of(const Workload& workload) {
  double sum = 0, squares = 0;
  const auto& requests = workload.requests;
  for (std::size_t i = 1; i < requests.size(); ++i) {
    const auto gap = static_cast<double>(requests[i].arrival_ns - requests[i - 1].arrival_ns);
    sum += gap;
    squares += gap * gap;
  }
  const double n = static_cast<double>(requests.size() - 1), mean = sum / n;
  return std::sqrt(squares / n - mean * mean) / mean;
}

TEST(Arrivals, GammaGapsHaveTheirCoefficientOfVariation) {
  for (const double cv : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    auto workload = list_of(100'000);
    ASSERT_TRUE(assign_arrivals(workload, {ArrivalProcess::kGamma, 0, 2.0, cv, 3}).is_ok());
    EXPECT_NEAR(cv_of(workload) / cv, 1.0, 0.05) << cv;
  }
}

TEST(Arrivals, PoissonHasACvOfOne) {
  auto workload = list_of(50'000);
  ASSERT_TRUE(assign_arrivals(workload, {ArrivalProcess::kPoisson, 0, 7.0, 1.0, 1}).is_ok());
  EXPECT_NEAR(cv_of(workload), 1.0, 0.03);
}

TEST(Arrivals, DrawnTimesBeginAtZeroNeverGoBackAndEndAtTheNominalRateExactly) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    auto workload = list_of(1001);
    ASSERT_TRUE(assign_arrivals(workload, {ArrivalProcess::kGamma, 0, 4.0, 4.0, seed}).is_ok());
    EXPECT_TRUE(workload.timed);
    EXPECT_EQ(workload.requests.front().arrival_ns, 0);
    EXPECT_EQ(workload.requests.back().arrival_ns, 250 * kSecond);
    for (std::size_t i = 1; i < workload.requests.size(); ++i) {
      EXPECT_LE(workload.requests[i - 1].arrival_ns, workload.requests[i].arrival_ns);
    }
  }
}

TEST(Arrivals, ARateStretchesATracesOwnTimesAndKeepsTheirPattern) {
  auto workload = list_of(4);
  workload.timed = true;
  const Nanos times[] = {0, 100, 100, 300};
  for (std::size_t i = 0; i < 4; ++i) workload.requests[i].arrival_ns = times[i];
  auto as_is = workload;
  ASSERT_TRUE(assign_arrivals(as_is, {.process = ArrivalProcess::kTrace}).is_ok());
  EXPECT_EQ(as_is, workload);
  ASSERT_TRUE(
      assign_arrivals(workload, {.process = ArrivalProcess::kTrace, .rate_per_s = 1}).is_ok());
  EXPECT_EQ(workload.requests[1].arrival_ns, kSecond);
  EXPECT_EQ(workload.requests[3].arrival_ns, 3 * kSecond);
}

TEST(Arrivals, WithoutARateTheTracesOwnIsKept) {
  auto workload = *documents_workload({.documents = 10, .requests = 100});
  const Nanos last = workload.requests.back().arrival_ns;
  ASSERT_TRUE(assign_arrivals(workload, {.process = ArrivalProcess::kGamma, .cv = 4}).is_ok());
  EXPECT_NEAR(static_cast<double>(workload.requests.back().arrival_ns), static_cast<double>(last),
              10);
}

TEST(Arrivals, WhatIsNotThereIsAnErrorWithItsCure) {
  auto workload = list_of(5);
  const auto error = [&](const ArrivalOptions& options) {
    return assign_arrivals(workload, options).message();
  };
  EXPECT_NE(error({.process = ArrivalProcess::kTrace}).find("no arrivals of its own"),
            std::string::npos);
  EXPECT_NE(error({.process = ArrivalProcess::kGamma}).find("give a rate"), std::string::npos);
  EXPECT_NE(error({.process = ArrivalProcess::kPoisson, .rate_per_s = 1, .cv = 2}).find("gamma"),
            std::string::npos);
  EXPECT_TRUE(assign_arrivals(workload, {}).is_ok());
}

TEST(Arrivals, NamesAreParsedAndAnUnknownOneIsAnError) {
  EXPECT_EQ(parse_arrivals("closed")->concurrency, 0U);
  EXPECT_EQ(parse_arrivals("closed:12")->concurrency, 12U);
  EXPECT_EQ(parse_arrivals("gamma")->process, ArrivalProcess::kGamma);
  EXPECT_EQ(parse_arrivals("trace")->process, ArrivalProcess::kTrace);
  EXPECT_EQ(parse_arrivals("poisson")->process, ArrivalProcess::kPoisson);
  for (const char* bad : {"closed:", "closed:0", "closed:x", "closed:3x", "open", ""}) {
    EXPECT_FALSE(parse_arrivals(bad)) << bad;
  }
}

TEST(Interleave, KeepsEveryConversationsOrderAndOpensNoMoreThanItsBound) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Workload workload = list_of(0);
    for (std::uint64_t conversation = 0; conversation < 20; ++conversation) {
      for (std::uint32_t turn = 0; turn < 5 + conversation % 7; ++turn) {
        WorkloadRequest request;
        request.conversation = conversation;
        request.input_tokens = turn;
        request.output_tokens = static_cast<std::uint32_t>(5 + conversation % 7);
        workload.requests.push_back(request);
      }
    }
    const auto mixed = interleave(workload, 4, seed);
    ASSERT_EQ(mixed.requests.size(), workload.requests.size());
    std::map<std::uint64_t, std::uint32_t> next;
    std::set<std::uint64_t> open;
    std::size_t most = 0;
    for (const auto& request : mixed.requests) {
      EXPECT_EQ(request.input_tokens, next[request.conversation]++) << "seed " << seed;
      open.insert(request.conversation);
      most = std::max(most, open.size());
      if (next[request.conversation] == request.output_tokens) open.erase(request.conversation);
    }
    EXPECT_EQ(most, 4U);
    EXPECT_EQ(interleave(workload, 4, seed), mixed);
    EXPECT_EQ(interleave(workload, 1, seed), workload);
  }
}

}  // namespace
}  // namespace kvstream
