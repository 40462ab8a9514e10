// `kvstream replay --virtual-time` and `kvstream bench fit`, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/program.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class VirtualEndToEnd : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  static std::vector<std::string> base() {
    return {"replay", "documents",         "--virtual-time", "--documents", "8",     "--requests",
            "40",     "--document-tokens", "4096",           "--progress",  "never", "--log",
            "warn"};
  }
  static Ran run(std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_kvstream(arguments);
  }
  json play(const std::vector<std::string>& more, const std::string& name = "run.json") const {
    auto arguments = more;
    arguments.insert(arguments.end(), {"--json", path(name)});
    const Ran ran = run(base(), arguments);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return read_json(path(name));
  }
  static json read_json(const std::string& file) {
    std::ifstream in(file);
    return json::parse(in, nullptr, false);
  }
  /// One line that says what and how to cure it; nothing was played.
  static void expect_bad_input(const std::vector<std::string>& more, const std::string& says) {
    expect_bad(base(), more, says);
  }
  static void expect_bad(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& more, const std::string& says) {
    const Ran ran = run(arguments, more);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_EQ(count_lines(ran.err), 1U) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(says));
    EXPECT_EQ(ran.out, "");
  }

  TempDirectory directory_;
};

TEST_F(VirtualEndToEnd, OneRunHasItsTableAndAllItsFields) {
  const Ran ran = run(base(), {"--json", path("run.json"), "--skip", "10", "--prefill-store",
                               "--device-prefix-cache", "off"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const char* text :
       {"engine     modelled: llama-3-8b on 1 x h100-80g", "tier       nvme", "modelled: read",
        "TTFT mean", "accounts closed", "virtual time: tiers"}) {
    EXPECT_THAT(ran.out, HasSubstr(text));
  }
  const json report = read_json(path("run.json"));
  EXPECT_EQ(report.at("virtual_time"), true);
  EXPECT_EQ(report.at("requests"), 40);
  EXPECT_EQ(report.at("ranks"), 1);
  EXPECT_EQ(report.at("shards"), 1);
  EXPECT_EQ(report.at("checks").at("accounts_closed"), true);
  EXPECT_TRUE(report.at("checks").at("wrong_bytes").is_null()) << "no byte was looked at";
  EXPECT_TRUE(report.at("load").is_null());
  EXPECT_GT(report.at("ttft_s").at("mean").get<double>(), 0);
  EXPECT_GT(report.at("blocks").at("hits").get<int>(), 0);
  EXPECT_GT(report.at("makespan_s").get<double>(), 0);
  const auto& tokens = report.at("tokens");
  EXPECT_EQ(tokens.at("prompt").get<std::uint64_t>(),
            tokens.at("cached").get<std::uint64_t>() +
                tokens.at("cached_device").get<std::uint64_t>() +
                tokens.at("computed").get<std::uint64_t>());
}

TEST_F(VirtualEndToEnd, TwoProcessesGiveTheSameReportToTheLastDigitAndAnotherSeedDoesNot) {
  const std::vector<std::string> setting = {
      "--virtual-ranks", "3",   "--virtual-nodes", "2", "--loads",  "async",
      "--replication",   "all", "--pairs",         "2", "--policy", "serial,completion"};
  const auto without_name = [](json report) {
    report.erase("config");  // it names the file
    return report.dump();
  };
  auto other = setting;
  other.insert(other.end(), {"--seed", "2"});
  const std::string first = without_name(play(setting, "one.json"));
  EXPECT_EQ(first, without_name(play(setting, "two.json")));
  EXPECT_NE(first, without_name(play(other, "three.json")));
}

TEST_F(VirtualEndToEnd, EveryKindOfSideIsComparedAndItsAccountsClose) {
  const json report = play({"--side", "rival", "--side", "rival-deferred", "--side", "no-cache",
                            "--side", "completion", "--virtual-ranks", "2", "--shards", "2",
                            "--skip", "10", "--prefill-store"});
  ASSERT_EQ(report.at("runs").size(), 4U);
  for (const auto& side : report.at("runs")) {
    EXPECT_EQ(side.at("checks").at("accounts_closed"), true) << side.at("side");
    EXPECT_EQ(side.at("catalog_hash_at_start"), report.at("runs")[0].at("catalog_hash_at_start"));
    EXPECT_EQ(side.at("requests"), 40);
    EXPECT_EQ(side.at("shards"), 2);
  }
  for (const auto& [tier, bytes] : report.at("runs")[2].at("bytes").at("read").items()) {
    EXPECT_EQ(bytes, 0) << "no-cache read from " << tier;
  }
}

TEST_F(VirtualEndToEnd, ALoadIsAPartOfTheFirstSidesSaturatedThroughput) {
  const std::vector<std::string> gamma = {"--arrivals", "gamma", "--cv", "4"};
  auto low = gamma, high = gamma;
  low.insert(low.end(), {"--load", "0.3"});
  high.insert(high.end(), {"--load", "5"});
  const json relaxed = play(low).at("load");
  EXPECT_EQ(relaxed.at("fraction"), 0.3);
  EXPECT_NEAR(relaxed.at("rate_per_s").get<double>(),
              0.3 * relaxed.at("saturated_per_s").get<double>(), 1e-9);
  const json overload = play(high).at("load");
  EXPECT_EQ(overload.at("saturated_per_s"), relaxed.at("saturated_per_s"));
  EXPECT_EQ(overload.at("stable"), false);
  EXPECT_GT(overload.at("makespan_over_last_arrival").get<double>(), 1.04);
}

TEST_F(VirtualEndToEnd, ASlowTierTakesLongerAndATimelineIsWritten) {
  const std::vector<std::string> tier = {"--tier",
                                         "nvme=nvme:,cap=64GiB,read=6GB/s,write=5GB/s",
                                         "--skip",
                                         "10",
                                         "--prefill-store",
                                         "--device-prefix-cache",
                                         "off"};
  auto slow = tier;
  slow.insert(slow.end(), {"--slow", "nvme@0=1/10", "--timeline", path("timeline.json")});
  const double usual_s = play(tier).at("step_read_s").at("mean");
  const double slow_s = play(slow).at("step_read_s").at("mean");
  EXPECT_GT(slow_s, 5 * usual_s);
  EXPECT_TRUE(read_json(path("timeline.json")).is_object());
}

TEST_F(VirtualEndToEnd, BadInputIsOneLineWithItsCure) {
  expect_bad_input({"--model", "nope"}, "there are llama-3-8b");
  expect_bad_input({"--device", "nope"}, "there are a100-80g");
  expect_bad_input({"--model", "llama-3-70b"}, "take at least 2 devices");
  expect_bad_input({"--device-kv", "1KiB"}, "give at least 16 tokens");
  expect_bad_input({"--tier", "nvme=nvme:/x,cap=1GiB"}, "write read=..,write=.. behind it");
  expect_bad_input({"--tier", "nvme=nvme:/x,read=1GB/s,write=1GB/s"}, "write e.g. cap=2GiB");
  expect_bad_input({"--load", "0.7"}, "add --arrivals gamma --cv 4, or poisson");
  expect_bad_input({"--load", "0.7", "--arrivals", "trace"}, "add --arrivals gamma");
  expect_bad_input({"--fit", path("absent")}, "`kvstream bench fit` makes one");
  expect_bad_input({"--fit", directory_.path()}, "`kvstream bench fit` makes one");
  std::ofstream(path("broken")) << R"({"tiers": {"nvme": {"read_bytes_per_s": "fast"}}})";
  expect_bad_input({"--fit", path("broken")}, "tier nvme: a figure is no number");
  std::ofstream(path("without")) << R"({"tiers": {}})";
  expect_bad_input({"--fit", path("without"), "--tier", "nvme=nvme:/x,cap=1GiB"},
                   "does not know how fast tier nvme is");
  expect_bad_input({"--slow", "nope@1=0.1"}, "names no throttled tier");
  expect_bad_input({"--json", path("absent/run.json")}, "name another file");
}

TEST_F(VirtualEndToEnd, WhatOnlyVirtualTimeHasIsRefusedInRealTime) {
  for (const char* engine : {"plain", "vllm"}) {
    const std::vector<std::string> real = {"replay", "documents", "--log",
                                           "warn",   "--engine",  engine};
    expect_bad(real, {"--load", "0.7"}, "--virtual-time");
  }
  expect_bad({"replay", "documents", "--log", "warn"}, {"--shards", "2"}, "--engine vllm");
}

TEST_F(VirtualEndToEnd, AHostTierKeepsTheOneRateThatItWasGiven) {
  const json run = play({"--tier", "host=host,cap=64GiB,read=500MB/s", "--skip", "10",
                         "--prefill-store", "--device-prefix-cache", "off"});
  const double bytes = run.at("bytes").at("read").at("host");
  EXPECT_GE(run.at("makespan_s").get<double>(), bytes / 500e6);
}

TEST_F(VirtualEndToEnd, SmallBlocksAreNotDroppedForWantOfAPool) {
  for (const char* block_tokens : {"16", "64", "512"}) {
    const json run = play({"--block-tokens", block_tokens, "--shards", "2"});
    EXPECT_EQ(run.at("writes").at("dropped"), 0) << block_tokens;
    EXPECT_GT(run.at("writes").at("published").get<int>(), 0);
  }
}

TEST_F(VirtualEndToEnd, AnInterruptEndsARunWithWhatWasPlayed) {
  RunOptions options;
  options.interrupt_when = "virtual time";
  const Ran ran = run_kvstream({"replay", "documents", "--virtual-time", "--documents", "10000",
                                "--requests", "200000", "--document-tokens", "4096", "--progress",
                                "always", "--log", "warn", "--json", path("run.json")},
                               options);
  EXPECT_EQ(ran.code, 130) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("interrupted"));
  const json report = read_json(path("run.json"));
  EXPECT_EQ(report.at("interrupted"), true);
  EXPECT_EQ(report.at("checks").at("accounts_closed"), true) << report.at("checks").dump();
  EXPECT_LT(report.at("requests").get<int>(), 200'000);
}

TEST_F(VirtualEndToEnd, BenchFitMeasuresATierThatVirtualTimeThenHas) {
  const std::string tier =
      "nvme=nvme:" + path("nvme") + ",cap=64MiB,read=80MB/s,write=60MB/s,latency=2ms";
  const Ran ran = run_kvstream(
      {"bench", "fit", path("fit.json"), "--block", "256KiB", "--tier", tier, "--log", "warn"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("nvme"));
  const json fit = read_json(path("fit.json"));
  const auto& nvme = fit.at("tiers").at("nvme");
  EXPECT_NEAR(nvme.at("read_bytes_per_s").get<double>(), 80e6, 8e6);
  EXPECT_NEAR(nvme.at("write_bytes_per_s").get<double>(), 60e6, 6e6);
  EXPECT_GE(nvme.at("read_latency_s").get<double>(), 0.002);
  EXPECT_GT(fit.at("copies").at("copy_bytes_per_s").get<double>(), 0);
  const json run = play({"--fit", path("fit.json"), "--tier", "nvme=nvme:,cap=64GiB"});
  EXPECT_EQ(run.at("checks").at("accounts_closed"), true);

  const Ran none = run_kvstream({"bench", "fit", path("none.json"), "--log", "warn"});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(count_lines(none.err), 1U) << none.err;
  EXPECT_THAT(none.err, HasSubstr("--tier NAME=KIND"));
}

/// The same requests, settings and speeds, once with bytes and clocks and once modelled. Forward
/// passes (timers) and throttles take most of the time, and no write is dropped, so that another
/// process on the machine moves the real figures by some percent and not by a quarter: on a quiet
/// machine they agree within 2 %.
TEST_F(VirtualEndToEnd, RealTimeAndVirtualTimeAgreeOnASmallCase) {
  constexpr double kAgreement = 0.25;
  std::ofstream(path("fit.json"))
      << R"({"tiers": {"nvme": {"read_bytes_per_s": 40e6, "write_bytes_per_s": 32e6,
  "read_latency_s": 0.001, "write_latency_s": 0.001, "burst_s": 0.005},
  "pfs": {"read_bytes_per_s": 20e6, "write_bytes_per_s": 16e6, "read_latency_s": 0.004,
  "write_latency_s": 0.004, "burst_s": 0.005}}, "copies": {"threads": 1, "copy_bytes_per_s": 4e9}})";
  const std::vector<std::string> both = {
      "replay",
      "documents",
      "--engine",
      "vllm",
      "--documents",
      "5",
      "--requests",
      "20",
      "--arrivals",
      "closed:3",
      "--calibrate",
      "off",
      "--log",
      "warn",
      "--progress",
      "never",
      "--pool",
      "64MiB",
      "--bootstrap",
      "solo",
      "--scale",
      "bytes=1/256,time=1",
      "--tier",
      "nvme=nvme:" + path("nvme") + ",cap=256MiB,read=40MB/s,write=32MB/s,latency=1ms",
      "--tier",
      "pfs=pfs:" + path("pfs") + ",cap=256MiB,read=20MB/s,write=16MB/s,latency=4ms",
      "--document-tokens",
      "8192",
      "--device-prefix-cache",
      "off"};
  const Ran real = run(both, {"--json", path("real.json")});
  ASSERT_EQ(real.code, 0) << real.err;
  const Ran modelled =
      run(both, {"--virtual-time", "--fit", path("fit.json"), "--json", path("virtual.json")});
  ASSERT_EQ(modelled.code, 0) << modelled.err;
  const json a = read_json(path("real.json")), b = read_json(path("virtual.json"));
  EXPECT_EQ(a.at("tokens").at("prompt"), b.at("tokens").at("prompt"));
  EXPECT_EQ(a.at("writes").at("dropped"), 0);
  EXPECT_GT(a.at("bytes").at("read").at("pfs").get<double>(), 0);
  const auto expect_near = [&](const json& x, const json& y, const std::string& what) {
    const double real_value = x.get<double>(), virtual_value = y.get<double>();
    EXPECT_NEAR(virtual_value, real_value, kAgreement * real_value)
        << what << ": real " << real_value << ", virtual " << virtual_value;
  };
  expect_near(a.at("ttft_s").at("mean"), b.at("ttft_s").at("mean"), "mean TTFT");
  expect_near(a.at("makespan_s"), b.at("makespan_s"), "makespan");
  expect_near(a.at("step_read_s").at("mean"), b.at("step_read_s").at("mean"), "read time");
  for (const char* tier : {"nvme", "pfs"}) {
    expect_near(a.at("bytes").at("read").at(tier), b.at("bytes").at("read").at(tier), tier);
    expect_near(a.at("bytes").at("written").at(tier), b.at("bytes").at("written").at(tier), tier);
  }
}

}  // namespace
}  // namespace kvstream::test
