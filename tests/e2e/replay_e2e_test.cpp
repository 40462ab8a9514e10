// `kvstream replay` from the command line to the JSON, on one rank.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/program.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {
namespace {

using nlohmann::json;

class ReplayEndToEnd : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  /// Conversations that grow: request i repeats the blocks of request i - 8 and adds some.
  std::string write_trace(int requests) const {
    std::ofstream file(path("trace.jsonl"));
    for (int i = 0; i < requests; ++i) {
      const int conversation = i % 8, turn = i / 8;
      json line = {{"timestamp", 10 * i}, {"output_length", 5 + i % 7}};
      json ids = json::array();
      const int blocks = 2 + 2 * turn;
      for (int b = 0; b < blocks; ++b) ids.push_back(1000 * conversation + b);
      // The last block is partial, and another one each time.
      ids.push_back(100'000 + i);
      line["input_length"] = 512 * blocks + 100 + i;
      line["hash_ids"] = ids;
      file << line.dump() << "\n";
    }
    return path("trace.jsonl");
  }

  std::vector<std::string> base(const std::string& trace) const {
    return {"replay",      trace,
            "--bootstrap", "solo",
            "--calibrate", "off",
            "--log",       "warn",
            "--pool",      "64MiB",
            "--tier",      "host=host,cap=16MiB",
            "--tier",      "nvme=nvme:" + path("nvme") + ",cap=64MiB",
            "--tier",      "pfs=pfs:" + path("pfs") + ",cap=64MiB"};
  }

  Ran run(std::vector<std::string> arguments, const std::vector<std::string>& more) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_kvstream(arguments);
  }

  static json read_json(const std::string& file) {
    std::ifstream in(file);
    return json::parse(in, nullptr, false);
  }

  void expect_bad_input(const std::vector<std::string>& arguments, const std::string& says) const {
    const Ran ran = run_kvstream(arguments);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_EQ(count_lines(ran.err), 1U) << ran.err;
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
    EXPECT_EQ(ran.out, "");
  }

  TempDirectory directory_;
};

TEST_F(ReplayEndToEnd, EveryPolicyEndsWithRightBytesClosedAccountsAndTheWholeReport) {
  const Ran ran =
      run(base(write_trace(40)), {"--policy", "serial,pooled,static,shortest-queue,completion",
                                  "--skip", "16", "--prefill-store", "--replication", "all",
                                  "--json", path("run.json"), "--timeline", path("timeline.json")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("completion / serial"), std::string::npos) << ran.out;
  const json report = read_json(path("run.json"));
  ASSERT_EQ(report.at("runs").size(), 5U);
  EXPECT_TRUE(report.contains("comparisons"));
  EXPECT_TRUE(report.at("config").contains("policy"));
  for (const auto& one : report.at("runs")) {
    EXPECT_EQ(one.at("checks").at("wrong_bytes"), 0);
    EXPECT_GT(one.at("checks").at("bytes_verified"), 0);
    EXPECT_EQ(one.at("checks").at("accounts_closed"), true)
        << one.at("checks").at("account_that_is_open");
    EXPECT_EQ(one.at("checks").at("leases_at_rest"), 0);
    EXPECT_EQ(one.at("requests"), 24);
    EXPECT_EQ(one.at("catalog_hash_at_start"), report.at("runs")[0].at("catalog_hash_at_start"));
    EXPECT_GT(one.at("blocks").at("hits"), 0);
  }
  EXPECT_TRUE(read_json(path("timeline.json")).contains("traceEvents"));
}

TEST_F(ReplayEndToEnd, OneSideIsOneRunWithEveryKeyOfTheReport) {
  const Ran ran = run(base(write_trace(24)), {"--json", path("run.json")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json report = read_json(path("run.json"));
  for (const char* pointer : {"/config/batch/source",
                              "/ranks",
                              "/requests",
                              "/tokens/prompt",
                              "/tokens/cached_device",
                              "/tokens/cached",
                              "/tokens/computed",
                              "/tokens/output",
                              "/blocks/looked_up",
                              "/blocks/requested",
                              "/blocks/hit/host",
                              "/blocks/hit/nvme",
                              "/blocks/hit/pfs",
                              "/blocks/miss",
                              "/blocks/late",
                              "/blocks/cancelled",
                              "/blocks/recomputed_by_choice",
                              "/blocks/never_loaded",
                              "/bytes/read/nvme",
                              "/bytes/written/pfs",
                              "/bytes/staged",
                              "/ttft_s/mean",
                              "/ttft_s/p50",
                              "/ttft_s/p90",
                              "/ttft_s/p99",
                              "/e2e_s/mean",
                              "/throughput_tokens_per_s",
                              "/step_read_s/count",
                              "/step_read_s/mean",
                              "/step_read_s/p50",
                              "/step_read_s/p99",
                              "/io_share",
                              "/read_busy_share",
                              "/catalog_hash_at_start",
                              "/bound",
                              "/writes/offered",
                              "/writes/published",
                              "/writes/dropped",
                              "/checks/bytes_verified",
                              "/checks/wrong_bytes",
                              "/checks/accounts_closed",
                              "/checks/leases_at_rest",
                              "/cost/verify_cpu_s",
                              "/cost/cpu_s",
                              "/cost/steal_share",
                              "/cost/peak_rss_bytes",
                              "/cost/peak_shm_bytes",
                              "/modes/nvme"}) {
    EXPECT_TRUE(report.contains(json::json_pointer(pointer))) << pointer;
  }
}

TEST_F(ReplayEndToEnd, ThrottledTiersHaveABoundAndRepresentedRates) {
  auto arguments = std::vector<std::string>{
      "replay",
      write_trace(40),
      "--bootstrap",
      "solo",
      "--calibrate",
      "off",
      "--log",
      "warn",
      "--pool",
      "64MiB",
      "--skip",
      "16",
      "--prefill-store",
      "--tier",
      "nvme=nvme:" + path("nvme") + ",cap=64MiB,read=200MB/s,write=200MB/s",
      "--tier",
      "pfs=pfs:" + path("pfs") + ",cap=64MiB,read=100MB/s,write=100MB/s"};
  const Ran ran = run(arguments, {"--json", "-"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json report = json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(report.at("bound").is_object()) << report.at("bound");
  const auto& rates = report.at("bound").at("bandwidth_bytes_per_s");
  bool seen = false;
  for (const auto& [device, rate] : rates.items()) {
    if (device.rfind("nvme", 0) != 0) continue;
    seen = true;
    EXPECT_DOUBLE_EQ(rate.at("here"), 200e6);
    EXPECT_DOUBLE_EQ(rate.at("represented"), 200e6 * 256 / 20);
  }
  EXPECT_TRUE(seen) << rates;
}

TEST_F(ReplayEndToEnd, ASecondRunFindsTheBlocksOfTheFirst) {
  const std::string trace = write_trace(16);
  auto arguments = base(trace);
  const Ran cold = run(arguments, {"--replication", "all", "--json", path("cold.json")});
  ASSERT_EQ(cold.code, 0) << cold.err << cold.out;
  const Ran warm = run(arguments, {"--json", path("warm.json")});
  ASSERT_EQ(warm.code, 0) << warm.err << warm.out;
  const json cold_run = read_json(path("cold.json")), warm_run = read_json(path("warm.json"));
  // The host tier is empty again: the files are what was found.
  EXPECT_GT(warm_run.at("blocks").at("hit_ratio").get<double>(), 0.9);
  EXPECT_LT(cold_run.at("blocks").at("hit_ratio").get<double>(), 0.7);
  EXPECT_EQ(warm_run.at("checks").at("wrong_bytes"), 0);
  const Ran inspected = run_kvstream({"inspect", "--log", "warn", "--json", "-", "--tier",
                                      "nvme=nvme:" + path("nvme") + ",cap=64MiB"});
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_GT(json::parse(inspected.out).at("tiers").at(0).at("own_blocks"), 0);
}

TEST_F(ReplayEndToEnd, TheSameSeedPlaysTheSameRequests) {
  const std::vector<std::string> arguments{"replay", "--bootstrap",
                                           "solo",   "--calibrate",
                                           "off",    "--log",
                                           "warn",   "--documents",
                                           "4",      "--document-tokens",
                                           "3000",   "--writes",
                                           "inline", "--seed",
                                           "7",      "--json",
                                           "-"};
  const RunOptions here{60, "", {"TMPDIR=" + directory_.path()}};
  const Ran first = run_kvstream(arguments, here), second = run_kvstream(arguments, here);
  ASSERT_EQ(first.code, 0) << first.err;
  const json a = json::parse(first.out), b = json::parse(second.out);
  EXPECT_EQ(a.at("tokens"), b.at("tokens"));
  EXPECT_EQ(a.at("blocks").at("hits"), b.at("blocks").at("hits"));
  // The tiers that nobody asked for are gone.
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(ReplayEndToEnd, EveryWriteTimingAndThePresetsWork) {
  const Ran ran =
      run(base(write_trace(24)),
          {"--side", "rival", "--side", "rival-deferred", "--side", "no-cache", "--side",
           "completion writes=after-forward replication=all", "--json", path("run.json")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json report = read_json(path("run.json"));
  ASSERT_EQ(report.at("runs").size(), 4U);
  for (const auto& one : report.at("runs")) {
    if (one.at("side") == "rival") EXPECT_EQ(one.at("writes").at("dropped"), 0);
    if (one.at("side") == "rival") EXPECT_EQ(one.at("bytes").at("written").at("pfs"), 0);
    if (one.at("side") == "no-cache") EXPECT_EQ(one.at("blocks").at("hits"), 0);
    EXPECT_EQ(one.at("checks").at("wrong_bytes"), 0);
  }
}

TEST_F(ReplayEndToEnd, SettingsComeFromTomlAndTheCommandLineWins) {
  std::ofstream(path("run.toml"))
      << "batch = 4\nseed = 9\n[[tier]]\nname = \"only\"\nkind = \"host\"\n"
         "cap = \"16MiB\"\n";
  const Ran ran =
      run_kvstream({"replay", write_trace(16), "--bootstrap", "solo", "--calibrate", "off", "--log",
                    "warn", "--config", path("run.toml"), "--batch", "2", "--json", "-"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("config").at("batch").at("value"), 2);
  EXPECT_EQ(report.at("config").at("batch").at("source"), "command line");
  EXPECT_EQ(report.at("config").at("seed").at("value"), 9);
  EXPECT_EQ(report.at("steps"), 8);
  EXPECT_TRUE(report.at("bytes").at("read").contains("only"));
}

TEST_F(ReplayEndToEnd, BadInputIsOneLineAndCodeTwo) {
  const std::string trace = write_trace(8);
  expect_bad_input({"replay", "/no/such/trace.jsonl", "--bootstrap", "solo"},
                   "/no/such/trace.jsonl");
  std::ofstream(path("broken.jsonl"))
      << "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, "
         "\"hash_ids\": [1]}\n{oops\n";
  expect_bad_input({"replay", path("broken.jsonl"), "--bootstrap", "solo"}, "line 2");
  expect_bad_input({"replay", trace, "--polcy", "serial"}, "--polcy");
  expect_bad_input({"replay", trace, "--policy", "fastest"}, "fastest");
  expect_bad_input({"replay", trace, "--bootstrap", "solo", "--policy", "serial,fastest"},
                   "fastest");
  expect_bad_input({"replay", trace, "--bootstrap", "solo", "--side", "rivall"}, "rivall");
  expect_bad_input({"replay", trace, "--bootstrap", "solo", "--scale", "bites=1/2"}, "bites");
  expect_bad_input({"replay", trace, "--bootstrap", "solo", "--skip", "8"},
                   "none behind the first 8");
  expect_bad_input(
      {"replay", trace, "--bootstrap", "solo", "--tier", "nvme=nvme:/proc/nowhere,cap=1GiB"},
      "/proc/nowhere");
  expect_bad_input({"replay", trace, "--bootstrap", "solo", "--tier",
                    "nvme=nvme:" + path("big") + ",cap=900TiB"},
                   "900 TiB");
  expect_bad_input(
      {"replay", trace, "--bootstrap", "solo", "--pool", "900TiB", "--tier", "host=host,cap=16MiB"},
      "--pool");
  expect_bad_input(
      {"replay", trace, "--bootstrap", "solo", "--tier", "x=tape:" + path("tape") + ",cap=1GiB"},
      "tape");
  expect_bad_input({"replay", trace, "--bootstrap", "solo", "--json", "/no/such/folder/run.json"},
                   "/no/such/folder/run.json");
  expect_bad_input({"replay", trace, "--config", "/no/such.toml"}, "/no/such.toml");
  expect_bad_input({}, "subcommand");
}

TEST_F(ReplayEndToEnd, AnInterruptEndsInOrderAndRemovesTheTemporaryTiers) {
  RunOptions options{60, "[", {"TMPDIR=" + directory_.path()}};
  const Ran ran = run_kvstream({"replay", "--bootstrap", "solo", "--calibrate", "off", "--log",
                                "off", "--documents", "20", "--requests", "2000", "--batch", "1",
                                "--prefill-tokens-per-s", "20000", "--progress", "always"},
                               options);
  EXPECT_EQ(ran.code, 130) << ran.err;
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(ReplayEndToEnd, BenchStepComparesPoliciesAgainstTheBound) {
  const Ran ran = run_kvstream(
      {"bench",       "step",
       "--bootstrap", "solo",
       "--log",       "warn",
       "--pool",      "32MiB",
       "--block",     "256KiB",
       "--step",      "80MB",
       "--policy",    "serial,completion",
       "--pairs",     "2",
       "--json",      path("step.json"),
       "--tier",      "nvme=nvme:" + path("nvme") + ",cap=128MiB,read=100MB/s,write=100MB/s",
       "--tier",      "pfs=pfs:" + path("pfs") + ",cap=128MiB,read=50MB/s,write=50MB/s"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json report = read_json(path("step.json"));
  for (const auto& one : report.at("runs")) {
    EXPECT_EQ(one.at("checks").at("wrong_bytes"), 0);
    EXPECT_EQ(one.at("blocks").at("hits"), 305);
    EXPECT_EQ(one.at("bytes").at("written").at("nvme"), 0);
    // Each limiter was held to its rate, alone and with the other, and nothing of it is left.
    EXPECT_TRUE(one.at("marks").empty()) << one.at("marks");
    for (const auto& device : one.at("calibration").at("throttled")) {
      EXPECT_EQ(device.at("agrees"), true) << device;
      EXPECT_GT(device.at("joint_bytes_per_s"), 0) << device;
    }
    EXPECT_GT(one.at("bound").at("t_star_joint_s"), 0.5);
  }
  for (const auto& tier : {"nvme", "pfs"}) {
    for (const auto& entry : std::filesystem::directory_iterator(path(tier))) {
      EXPECT_EQ(entry.path().string().find("calibration"), std::string::npos) << entry.path();
    }
  }
  for (const auto& line : report.at("comparisons")) {
    if (line.at("measure") != "step_read_s.mean") continue;
    EXPECT_DOUBLE_EQ(line.at("ceiling"), 1.5);
    EXPECT_GT(line.at("ratio"), 1.0);
  }
}

TEST_F(ReplayEndToEnd, AThrottleAboveWhatIsBelowItMarksTheRun) {
  const Ran ran = run_kvstream({"replay", write_trace(4), "--bootstrap", "solo", "--log", "warn",
                                "--tier", "nvme=nvme:" + path("nvme") + ",cap=64MiB,read=900GB/s",
                                "--json", path("run.json")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("marked: device nvme"), std::string::npos) << ran.out;
  const json report = read_json(path("run.json"));
  ASSERT_EQ(report.at("marks").size(), 1U) << report.at("marks");
  EXPECT_EQ(report.at("calibration").at("throttled").at(0).at("agrees"), false);
}

TEST_F(ReplayEndToEnd, TheVersionSaysWhatTheBuildCanDo) {
  const Ran ran = run_kvstream({"--version"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.out.find("kvstream "), std::string::npos);
  EXPECT_NE(ran.out.find("MPI"), std::string::npos);
  const Ran help = run_kvstream({"replay", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Examples:"), std::string::npos);
}

}  // namespace
}  // namespace kvstream::test
