#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "config/settings.hpp"

namespace kvstream {
namespace {

using testing::HasSubstr;

class ConfigFile : public testing::Test {
 protected:
  void SetUp() override { add_engine_settings(table, config); }
  Status load(const std::string& text) {
    return load_config_text(text, "site.toml", table, config.tiers);
  }
  void expect_error(const std::string& text, const char* part) {
    const Status status = load(text);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(part)) << text;
    EXPECT_THAT(status.message(), HasSubstr("site.toml:")) << text;
    EXPECT_THAT(status.message(), testing::Not(HasSubstr("\n"))) << text;
  }

  EngineConfig config;
  SettingsTable table;
};

TEST_F(ConfigFile, SetsSettingsOfEveryKindAndRemembersTheSource) {
  const Status status = load(R"(
pool = "512MiB"
claim_blocks = 2
write-share-min = 0.2
hedge = false
policy = "pooled"
use-tiers = ["nvme0", "pfs"]
)");
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(config.settings.pool_bytes, 512ULL << 20U);
  EXPECT_EQ(config.mode.claim_blocks, 2U);
  EXPECT_DOUBLE_EQ(config.settings.write_share_min, 0.2);
  EXPECT_FALSE(config.settings.hedge);
  EXPECT_EQ(config.mode.policy, ReadPolicy::kPooled);
  EXPECT_EQ(config.mode.use_tiers, (std::vector<std::string>{"nvme0", "pfs"}));
  EXPECT_EQ(table.source_of("claim-blocks"), ValueSource::kFile);
}

TEST_F(ConfigFile, ReadsTiersInTheirOrder) {
  const Status status = load(R"(
[[tier]]
name = "host"
kind = "host"
cap = "1GiB"

[[tier]]
name = "nvme0"
kind = "nvme"
path = "/mnt/nvme0/{node}"
cap = "2GiB"
read = "500MB/s"
write = "400MB/s"
latency = "1ms"
nominal = "450MB/s"
)");
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_EQ(config.tiers.size(), 2U);
  EXPECT_EQ(config.tiers[0].name, "host");
  EXPECT_EQ(config.tiers[0].cap_bytes, 1ULL << 30U);
  const TierSpec& nvme = config.tiers[1];
  EXPECT_EQ(nvme.path, "/mnt/nvme0/{node}");
  EXPECT_EQ(nvme.throttle.read_bytes_per_s, 500'000'000U);
  EXPECT_EQ(nvme.throttle.write_bytes_per_s, 400'000'000U);
  EXPECT_EQ(nvme.throttle.latency_ns, kMillisecond);
  EXPECT_EQ(nvme.nominal_read_bytes_per_s, 450'000'000U);
}

TEST_F(ConfigFile, NamesFileLineAndNearestKeyOfAMistake) {
  expect_error("\n\npoool = \"1GiB\"\n", "site.toml:3");
  expect_error("poool = \"1GiB\"\n", "\"pool\"");
  expect_error("pool = \"much\"\n", "2GiB");
  expect_error("pool = { a = 1 }\n", "must be a text");
  expect_error("pool = = 3\n", "site.toml:1");
  expect_error("[engine]\npool = \"1GiB\"\n", "no setting");
  expect_error("use-tiers = [1, 2]\n", "list of texts");
}

TEST_F(ConfigFile, RefusesTiersThatAreIncompleteOrUnknownOrTwice) {
  expect_error("[[tier]]\nname = \"a\"\n", "kind");
  expect_error("[[tier]]\nname = \"a\"\nkind = \"nvme\"\ncapp = \"1GiB\"\n", "\"cap\"");
  expect_error("[tier]\nname = \"a\"\n", "[[tier]]");
  config.tiers.clear();
  const Status twice =
      load("[[tier]]\nname = \"a\"\nkind = \"host\"\n[[tier]]\nname = \"a\"\nkind = \"host\"\n");
  EXPECT_THAT(twice.message(), HasSubstr("two tiers"));
}

TEST_F(ConfigFile, SaysWhichFileIsNotThere) {
  const Status status = load_config_file("/no/such/file.toml", table, config.tiers);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/file.toml"));
}

TEST_F(ConfigFile, IsReadFromTheDisk) {
  std::string directory = (std::filesystem::temp_directory_path() / "kvstream-config-XXXXXX");
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  std::ofstream(directory + "/a.toml") << "claim-blocks = 9\n";
  EXPECT_TRUE(load_config_file(directory + "/a.toml", table, config.tiers).is_ok());
  EXPECT_EQ(config.mode.claim_blocks, 9U);
  EXPECT_FALSE(load_config_file(directory, table, config.tiers).is_ok());
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace kvstream
