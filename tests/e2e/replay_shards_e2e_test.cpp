// `kvstream replay --engine vllm --shards T`: real bytes of tensor-parallel parts.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/program.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kTurns = 5, kConversations = 8;

class ShardsEndToEnd : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  /// Conversations that grow: request i repeats the blocks of request i - 8 and adds some.
  void SetUp() override {
    std::ofstream file(path("trace.jsonl"));
    for (int i = 0; i < kTurns * kConversations; ++i) {
      const int conversation = i % kConversations, turn = i / kConversations;
      json line = {{"timestamp", 10 * i}, {"output_length", 5 + i % 7}};
      json ids = json::array();
      const int blocks = 2 + 2 * turn;
      for (int b = 0; b < blocks; ++b) ids.push_back(1000 * conversation + b);
      ids.push_back(100'000 + i);  // a partial block of its own
      line["input_length"] = 512 * blocks + 100 + i;
      line["hash_ids"] = ids;
      file << line.dump() << "\n";
    }
  }

  /// Writes end before the next step, and no read is made twice: runs are alike to the byte.
  std::vector<std::string> arguments(int shards, const std::string& places) const {
    return {"replay",
            path("trace.jsonl"),
            "--bootstrap",
            "solo",
            "--calibrate",
            "off",
            "--log",
            "error",
            "--engine",
            "vllm",
            "--device-prefix-cache",
            "off",
            "--sequences",
            "4",
            "--hedge",
            "off",
            "--pool",
            "64MiB",
            "--shards",
            std::to_string(shards),
            "--tier",
            "nvme=nvme:" + path(places) + "/nvme,cap=64MiB",
            "--tier",
            "pfs=pfs:" + path(places) + "/pfs,cap=64MiB",
            "--json",
            path("run.json")};
  }

  json play(std::vector<std::string> arguments, const std::vector<std::string>& more) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = run_kvstream(arguments);
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::ifstream in(path("run.json"));
    return json::parse(in, nullptr, false);
  }

  static void expect_right(const json& run) {
    EXPECT_EQ(run.at("checks").at("wrong_bytes"), 0);
    EXPECT_EQ(run.at("checks").at("accounts_closed"), true)
        << run.at("checks").at("account_that_is_open");
  }

  TempDirectory directory_;
};

std::uint64_t bytes_read(const json& run) {
  std::uint64_t sum = 0;
  for (const auto& bytes : run.at("bytes").at("read")) sum += bytes.get<std::uint64_t>();
  return sum;
}

TEST_F(ShardsEndToEnd, TwoShardsReadAndHitWhatOneDoesInBlocksOfHalfTheSize) {
  const std::vector<std::string> sides{"--skip",
                                       "16",
                                       "--prefill-store",
                                       "--replication",
                                       "all",
                                       "--pairs",
                                       "2",
                                       "--side",
                                       "serial writes=after-forward replication=all",
                                       "--side",
                                       "completion writes=after-forward replication=all"};
  const json one = play(arguments(1, "one"), sides);
  const json two = play(arguments(2, "two"), sides);
  ASSERT_EQ(one.at("runs").size(), 4U);
  ASSERT_EQ(two.at("runs").size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const json &whole = one.at("runs")[i], &halves = two.at("runs")[i];
    expect_right(whole);
    expect_right(halves);
    EXPECT_EQ(halves.at("ranks"), 1);
    EXPECT_EQ(whole.at("shards"), 1);
    EXPECT_EQ(halves.at("shards"), 2);
    EXPECT_EQ(halves.at("requests"), whole.at("requests"));
    EXPECT_EQ(halves.at("tokens"), whole.at("tokens"));
    EXPECT_GT(whole.at("blocks").at("hits"), 0);
    EXPECT_EQ(halves.at("blocks").at("hits"),
              2 * whole.at("blocks").at("hits").get<std::uint64_t>());
    EXPECT_EQ(halves.at("blocks").at("hit_ratio"), whole.at("blocks").at("hit_ratio"));
    // A partial block's bytes are rounded in each shard.
    const auto rounding = halves.at("blocks").at("hits").get<double>();
    EXPECT_NEAR(static_cast<double>(bytes_read(halves)), static_cast<double>(bytes_read(whole)),
                rounding);
    EXPECT_NEAR(halves.at("checks").at("bytes_verified").get<double>(),
                whole.at("checks").at("bytes_verified").get<double>(), rounding);
    EXPECT_EQ(halves.at("catalog_hash_at_start"), two.at("runs")[0].at("catalog_hash_at_start"));
  }
  for (const char* writer : {"r0", "r1"}) {
    EXPECT_TRUE(fs::exists(path("two/nvme/") + writer + "/s0.seg")) << writer;
  }
}

TEST_F(ShardsEndToEnd, WhatOneShardHasLostIsComputedAndTheRestIsLoaded) {
  const std::vector<std::string> first{"--requests", "24",       "--policy",
                                       "serial",     "--writes", "after-forward"};
  const std::vector<std::string> then{"--skip", "16",       "--policy",
                                      "serial", "--writes", "after-forward"};
  play(arguments(2, "whole"), first);
  fs::copy(path("whole"), path("cut"), fs::copy_options::recursive);
  fs::remove_all(path("cut/nvme/r1"));
  const json whole = play(arguments(2, "whole"), then);
  const json cut = play(arguments(2, "cut"), then);
  expect_right(whole);
  expect_right(cut);
  EXPECT_EQ(cut.at("requests"), whole.at("requests"));
  const auto usable = [](const json& run) {
    return run.at("blocks").at("usable").get<std::uint64_t>();
  };
  EXPECT_LT(usable(cut), usable(whole));
  EXPECT_GT(usable(cut), 0U);
  EXPECT_GT(cut.at("tokens").at("computed"), whole.at("tokens").at("computed"));
}

TEST_F(ShardsEndToEnd, ThePlainLoopRefusesShardsInOneLine) {
  const Ran ran = run_kvstream({"replay", path("trace.jsonl"), "--shards", "2"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(count_lines(ran.err), 1U) << ran.err;
  EXPECT_NE(ran.err.find("--engine vllm"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace kvstream::test
