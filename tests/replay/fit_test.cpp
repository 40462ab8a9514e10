#include "replay/fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "replay/fit_file.hpp"
#include "tiers/host_tier.hpp"
#include "tiers/temp_directory.hpp"
#include "tiers/throttled_tier.hpp"

namespace kvstream {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kBlock = 256 << 10;

std::unique_ptr<Tier> throttled(const ThrottleSpec& spec, std::uint64_t blocks = 128) {
  HostTier::Options options;
  options.cap_bytes = blocks * kBlock;
  options.block_bytes_max = kBlock;
  auto host = HostTier::open(options);
  EXPECT_TRUE(host) << host.error().message();
  auto control = ThrottleControl::open("", spec);
  EXPECT_TRUE(control);
  return std::make_unique<ThrottledTier>(std::move(*host), *control, SteadyClock::instance());
}

FitOptions quick() {
  FitOptions options;
  options.block_bytes = kBlock;
  options.bytes = 16ULL << 20U;
  options.phase_ns = 400 * kMillisecond;
  options.discard_ns = 100 * kMillisecond;
  options.lone_accesses = 8;
  options.burst_ns = ThrottleControl::kBurstNs;
  options.give_up_ns = 30 * kSecond;
  return options;
}

TEST(Fit, FindsTheRatesAndTheLatencyOfAThrottledTierInMemory) {
  const auto tier = throttled({200'000'000, 100'000'000, 4 * kMillisecond});
  const auto model = measure_tier_model(*tier, quick());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_NEAR(model->read_bytes_per_s, 200e6, 10e6);
  EXPECT_NEAR(model->write_bytes_per_s, 100e6, 5e6);
  // A waiting process may be woken late, and is never woken early.
  EXPECT_GE(model->read_latency_ns, 4 * kMillisecond);
  EXPECT_LE(model->read_latency_ns, 12 * kMillisecond);
  EXPECT_GE(model->write_latency_ns, 4 * kMillisecond);
  EXPECT_LE(model->write_latency_ns, 12 * kMillisecond);
  EXPECT_LE(model->disturbance, 0.1) << "its buckets are two";
  EXPECT_EQ(model->burst_ns, ThrottleControl::kBurstNs);
  EXPECT_EQ(tier->report().used_bytes, 0U) << "slots were not given back";
}

TEST(Fit, ATierWithoutRoomForTwoBlocksIsAnErrorWithItsCure) {
  const auto tier = throttled({200'000'000, 100'000'000, 0}, 1);
  const auto model = measure_tier_model(*tier, quick());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kNoSpace);
  EXPECT_THAT(model.error().message(), HasSubstr("raise its cap"));
}

TEST(Fit, ATierThatIsTooSlowIsGivenUp) {
  const auto tier = throttled({1'000'000, 1'000'000, 0});
  FitOptions options = quick();
  options.give_up_ns = 300 * kMillisecond;
  const auto model = measure_tier_model(*tier, options);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kTimedOut);
}

class FitFile : public testing::Test {
 protected:
  Result<Fit> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_fit(path_);
  }
  void expect_error(const std::string& text, const std::string& says) {
    const auto fit = read(text);
    ASSERT_FALSE(fit) << text;
    EXPECT_THAT(fit.error().message(), HasSubstr(says)) << text;
    EXPECT_THAT(fit.error().message(), HasSubstr(path_)) << text;
    EXPECT_EQ(fit.error().message().find('\n'), std::string::npos);
  }
  test::TempDirectory directory_;
  std::string path_ = directory_.path() + "/fit.json";
};

TEST_F(FitFile, ComesBackAsItWasWritten) {
  Fit fit;
  fit.tiers["nvme"] = {6.4e9, 5.1e9, 100 * kMicrosecond, 30 * kMicrosecond,
                       8,     0.25,  5 * kMillisecond};
  fit.tiers["host"] = {};
  fit.copies = {4, 8e9, 50e9};
  const auto again = read(to_json(fit).dump());
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(to_json(*again), to_json(fit));
  EXPECT_EQ(again->tiers.at("nvme").read_latency_ns, 100 * kMicrosecond);
  EXPECT_EQ(again->tiers.at("nvme").concurrency, 8U);
}

TEST_F(FitFile, WhatIsAbsentIsNothing) {
  const auto fit = read(R"({"tiers": {"nvme": {"read_bytes_per_s": 1e9}}})");
  ASSERT_TRUE(fit) << fit.error().message();
  EXPECT_EQ(fit->tiers.at("nvme").write_bytes_per_s, 0);
  EXPECT_EQ(fit->copies.threads, 1U);
}

TEST_F(FitFile, BrokenFilesAreErrorsOfOneLine) {
  expect_error("", "bench fit");
  expect_error("{", "bench fit");
  expect_error("[]", "bench fit");
  expect_error(R"({"tiers": []})", "bench fit");
  expect_error(R"({"tiers": {"nvme": 3}})", "nvme");
  expect_error(R"({"tiers": {"nvme": {"read_bytes_per_s": "fast"}}})", "nvme");
  expect_error(R"({"tiers": {"nvme": {"read_bytes_per_s": -1}}})", "nvme");
  expect_error(R"({"tiers": {"nvme": {"read_bytes_per_s": null}}})", "nvme");
  expect_error(R"({"tiers": {"nvme": {"disturbance": 1.5}}})", "nvme");
  expect_error(R"({"tiers": {"nvme": {"read_latency_s": 1e300}}})", "nvme");
  expect_error(R"({"tiers": {}, "copies": {"threads": "two"}})", "copies");
  expect_error(R"({"tiers": {}, "copies": {"copy_bytes_per_s": -3}})", "copies");
  expect_error(R"({"tiers": {}, "copies": 7})", "copies");
  const auto absent = read_fit(directory_.path() + "/absent");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code(), Code::kNotFound);
  EXPECT_FALSE(read_fit(directory_.path()));
}

}  // namespace
}  // namespace kvstream
