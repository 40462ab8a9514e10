// `kvstream replay` under mpirun: HDF5 segments on the shared tier, ranks that find each other's
// blocks, one line for bad input.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "e2e/program.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {
namespace {

using nlohmann::json;

class ReplayOnRanks : public testing::TestWithParam<int> {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  Ran run(std::vector<std::string> arguments) const {
    std::vector<std::string> words{"-k",
                                   "5",
                                   "100",
                                   "mpirun",
                                   "-n",
                                   std::to_string(GetParam()),
                                   "--oversubscribe",
                                   "--bind-to",
                                   "none",
                                   KVSTREAM_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_program("timeout", words,
                       {120, "", {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}});
  }

  TempDirectory directory_;
};

TEST_P(ReplayOnRanks, EveryRanksBytesAreRightAndTheJobsAccountsClose) {
  const Ran ran = run({"replay",
                       "--documents",
                       "6",
                       "--document-tokens",
                       "3000",
                       "--skip",
                       "24",
                       "--prefill-store",
                       "--requests",
                       "24",
                       "--batch",
                       "2",
                       "--calibrate",
                       "off",
                       "--log",
                       "warn",
                       "--pool",
                       "32MiB",
                       "--policy",
                       "serial,completion",
                       "--replication",
                       "all",
                       "--json",
                       path("run.json"),
                       "--tier",
                       "nvme=nvme:" + path("nvme") + ",cap=128MiB",
                       "--tier",
                       "pfs=pfs:" + path("pfs") + ",cap=128MiB"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::ifstream in(path("run.json"));
  const json report = json::parse(in, nullptr, false);
  ASSERT_EQ(report.at("runs").size(), 2U);
  for (const auto& one : report.at("runs")) {
    EXPECT_EQ(one.at("ranks"), GetParam());
    EXPECT_EQ(one.at("requests"), 24);
    EXPECT_EQ(one.at("checks").at("wrong_bytes"), 0);
    EXPECT_EQ(one.at("checks").at("accounts_closed"), true)
        << one.at("checks").at("account_that_is_open");
    // Documents are asked by whichever rank's turn it is: most are another rank's.
    EXPECT_GT(one.at("blocks").at("hit_ratio").get<double>(), 0.5);
    EXPECT_NE(one.at("modes").at("pfs").get<std::string>().find("hdf5"), std::string::npos);
  }
}

TEST_P(ReplayOnRanks, ShardsOfAllRanksFindEachOthersBlocksAndNoByteIsWrong) {
  if (GetParam() > 2) GTEST_SKIP() << "two ranks with two engines each are enough for two cores";
  const Ran ran = run({"replay",
                       "--documents",
                       "6",
                       "--document-tokens",
                       "3000",
                       "--skip",
                       "24",
                       "--prefill-store",
                       "--requests",
                       "24",
                       "--engine",
                       "vllm",
                       "--shards",
                       "2",
                       "--device-prefix-cache",
                       "off",
                       "--sequences",
                       "2",
                       "--device-kv",
                       "4GiB",
                       "--calibrate",
                       "off",
                       "--log",
                       "warn",
                       "--pool",
                       "32MiB",
                       "--policy",
                       "serial,completion",
                       "--pairs",
                       "2",
                       "--replication",
                       "all",
                       "--json",
                       path("run.json"),
                       "--tier",
                       "nvme=nvme:" + path("nvme") + ",cap=128MiB",
                       "--tier",
                       "pfs=pfs:" + path("pfs") + ",cap=128MiB"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::ifstream in(path("run.json"));
  const json report = json::parse(in, nullptr, false);
  ASSERT_EQ(report.at("runs").size(), 4U);
  for (const auto& one : report.at("runs")) {
    EXPECT_EQ(one.at("ranks"), GetParam());
    EXPECT_EQ(one.at("shards"), 2);
    EXPECT_EQ(one.at("requests"), 24);
    EXPECT_EQ(one.at("checks").at("wrong_bytes"), 0);
    EXPECT_EQ(one.at("checks").at("accounts_closed"), true)
        << one.at("checks").at("account_that_is_open");
    EXPECT_GT(one.at("blocks").at("hit_ratio").get<double>(), 0.5);
  }
  // An engine a shard of a rank, each a writer of its own.
  for (int writer = 0; writer < 2 * GetParam(); ++writer) {
    const std::string place = path("nvme") + "/r" + std::to_string(writer);
    EXPECT_TRUE(std::filesystem::exists(place + "/s0.seg")) << place;
  }
}

TEST_P(ReplayOnRanks, BadInputIsSaidOnceAndAllRanksEnd) {
  const Ran ran = run({"replay", "/no/such/trace.jsonl"});
  EXPECT_EQ(ran.code, 2) << ran.err;
  std::size_t said = 0;
  for (std::size_t at = ran.err.find("kvstream: "); at != std::string::npos;
       at = ran.err.find("kvstream: ", at + 1)) {
    ++said;
  }
  EXPECT_EQ(said, 1U) << ran.err;
}

/// Whether some process of this machine has the word in its command line.
bool somebody_runs(const std::string& word) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::ifstream in(entry.path() / "cmdline");
    const std::string line{std::istreambuf_iterator<char>(in), {}};
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

TEST_P(ReplayOnRanks, AnInterruptLeavesAWholeReportAndNoProcess) {
  RunOptions options{40, " of ", {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}};
  // The tiers are slow: what waits to be written when the signal comes would take a minute.
  const Ran ran = run_program(KVSTREAM_MPIRUN,
                              {"-n",
                               std::to_string(GetParam()),
                               "--oversubscribe",
                               KVSTREAM_PROGRAM,
                               "replay",
                               "--documents",
                               "20",
                               "--requests",
                               "4000",
                               "--batch",
                               "1",
                               "--prefill-tokens-per-s",
                               "50000",
                               "--calibrate",
                               "off",
                               "--log",
                               "off",
                               "--progress",
                               "always",
                               "--json",
                               path("run.json"),
                               "--tier",
                               "nvme=nvme:" + path("nvme") + ",cap=128MiB,write=1MB/s",
                               "--tier",
                               "pfs=pfs:" + path("pfs") + ",cap=128MiB,write=1MB/s"},
                              options);
  EXPECT_EQ(ran.code, 130);
  std::ifstream in(path("run.json"));
  const json report = json::parse(in, nullptr, false);
  ASSERT_TRUE(report.is_object()) << "no whole report";
  EXPECT_EQ(report.at("interrupted"), true);
  EXPECT_GT(report.at("requests"), 0);
  EXPECT_LT(report.at("requests"), 4000);
  EXPECT_EQ(report.at("ranks"), GetParam());
  EXPECT_EQ(report.at("checks").at("wrong_bytes"), 0);
  EXPECT_EQ(report.at("checks").at("accounts_closed"), true)
      << report.at("checks").at("account_that_is_open");
  EXPECT_FALSE(somebody_runs(path("run.json")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReplayOnRanks, testing::Values(1, 2, 4));

}  // namespace
}  // namespace kvstream::test
