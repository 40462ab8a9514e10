#include "config/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace kvstream {
namespace {

using testing::HasSubstr;
using enum ValueSource;

class SettingsOfAnEngine : public testing::Test {
 protected:
  void SetUp() override { add_engine_settings(table, config); }
  void expect_refused(const char* name, const char* text, const char* cure) {
    const std::string before = table.value_text(name);
    const Status status = table.set(name, text, kCommandLine);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name << "=" << text;
    EXPECT_THAT(status.message(), HasSubstr(cure)) << name << "=" << text;
    EXPECT_EQ(table.value_text(name), before);
    EXPECT_EQ(table.source_of(name), kDefault);
  }

  EngineConfig config;
  SettingsTable table;
};

TEST_F(SettingsOfAnEngine, StartWithTheDefaultsOfThePublicStructs) {
  EXPECT_EQ(table.value_text("policy"), "completion");
  EXPECT_EQ(table.value_text("pool"), "256MiB");
  EXPECT_EQ(table.value_text("lease"), "30s");
  EXPECT_EQ(table.value_text("write-share-min"), "0.1");
  EXPECT_EQ(table.source_of("pool"), kDefault);
}

TEST_F(SettingsOfAnEngine, WriteTheVariablesOfEveryKind) {
  ASSERT_TRUE(table.set("pool", "1GiB", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("block-max", "512KiB", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("claim-blocks", "4", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("lease", "1500ms", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("write-share-min", "0.25", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("hedge", "off", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("policy", "shortest-queue", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("use-tiers", "nvme0,pfs", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("node", "n17", kCommandLine).is_ok());
  EXPECT_EQ(config.settings.pool_bytes, 1ULL << 30U);
  EXPECT_EQ(config.settings.block_bytes_max, 512U << 10U);
  EXPECT_EQ(config.mode.claim_blocks, 4U);
  EXPECT_EQ(config.settings.lease_ns, 1500 * kMillisecond);
  EXPECT_DOUBLE_EQ(config.settings.write_share_min, 0.25);
  EXPECT_FALSE(config.settings.hedge);
  EXPECT_EQ(config.mode.policy, ReadPolicy::kShortestQueue);
  EXPECT_EQ(config.mode.use_tiers, (std::vector<std::string>{"nvme0", "pfs"}));
  EXPECT_EQ(config.node, "n17");
}

TEST_F(SettingsOfAnEngine, KnowEveryNameOfEveryChoice) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> choices = {
      {"policy", {"serial", "pooled", "static", "shortest-queue", "completion"}},
      {"queue-measure", {"bytes", "finish"}},
      {"serial-depth", {"1", "request"}},
      {"writes", {"deferred", "after-forward", "inline"}},
      {"replication", {"none", "one", "all"}},
      {"landing", {"auto", "direct", "staged"}}};
  for (const auto& [name, values] : choices) {
    for (const char* value : values) {
      ASSERT_TRUE(table.set(name, value, kCommandLine).is_ok()) << name << "=" << value;
      EXPECT_EQ(table.value_text(name), value);
    }
  }
  EXPECT_EQ(to_string(config.mode.policy), "completion");
  EXPECT_EQ(to_string(SerialDepth::kBlock), "1");
  EXPECT_EQ(to_string(WriteTiming::kAfterForward), "after-forward");
}

TEST_F(SettingsOfAnEngine, RefuseBadValuesWithTheCureAndChangeNothing) {
  expect_refused("policy", "fastest", "completion");
  expect_refused("pool", "lots", "2GiB");
  expect_refused("claim-blocks", "0", "between 1 and 1024");
  expect_refused("claim-blocks", "1.5", "whole number");
  expect_refused("claim-blocks", "-1", "whole number");
  expect_refused("block-max", "8GiB", "between");
  expect_refused("write-share-min", "2", "between 0 and 0.9");
  expect_refused("write-share-min", "nan", "between");
  expect_refused("hedge", "maybe", "true or false");
  expect_refused("lease", "soon", "30s");
}

TEST_F(SettingsOfAnEngine, NameTheNearestKnownSettingForAnUnknownOne) {
  const Status near = table.set("claim-block", "1", kCommandLine);
  EXPECT_EQ(near.code(), Code::kInvalidArgument);
  EXPECT_THAT(near.message(), HasSubstr("\"claim-blocks\""));
  EXPECT_THAT(table.set("polcy", "pooled", kFile).message(), HasSubstr("\"policy\""));
  EXPECT_THAT(table.set("qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "1", kFile).message(),
              HasSubstr("--help"));
}

TEST_F(SettingsOfAnEngine, LetTheCommandLineWinOverEnvironmentOverFileInAnyOrder) {
  ASSERT_TRUE(table.set("claim-blocks", "4", kCommandLine).is_ok());
  ASSERT_TRUE(table.set("claim-blocks", "3", kEnvironment).is_ok());
  ASSERT_TRUE(table.set("claim-blocks", "2", kFile).is_ok());
  EXPECT_EQ(config.mode.claim_blocks, 4U);
  EXPECT_EQ(table.source_of("claim-blocks"), kCommandLine);
  ASSERT_TRUE(table.set("pool", "64MiB", kFile).is_ok());
  ASSERT_TRUE(table.set("pool", "128MiB", kEnvironment).is_ok());
  EXPECT_EQ(config.settings.pool_bytes, 128ULL << 20U);
  EXPECT_EQ(table.source_of("pool"), kEnvironment);
}

TEST_F(SettingsOfAnEngine, RefuseABadValueAlsoWhenItWouldLose) {
  ASSERT_TRUE(table.set("claim-blocks", "4", kCommandLine).is_ok());
  EXPECT_FALSE(table.set("claim-blocks", "none", kFile).is_ok());
  EXPECT_EQ(config.mode.claim_blocks, 4U);
}

TEST_F(SettingsOfAnEngine, ComeFromTheEnvironmentByTheirUpperCaseNames) {
  const char* environment[] = {"PATH=/bin",           "KVSTREAM_CLAIM_BLOCKS=7",
                               "KVSTREAM_POOL=32MiB", "KVSTREAM_TEST_FULL=1",
                               "KVSTREAM_NO_SUCH=1",  nullptr};
  ASSERT_TRUE(table.load_environment(environment).is_ok());
  EXPECT_EQ(config.mode.claim_blocks, 7U);
  EXPECT_EQ(config.settings.pool_bytes, 32ULL << 20U);
  EXPECT_EQ(table.source_of("claim-blocks"), kEnvironment);
}

TEST_F(SettingsOfAnEngine, NameTheVariableOfABadValue) {
  const char* environment[] = {"KVSTREAM_POLICY=fast", nullptr};
  const Status status = table.load_environment(environment);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("KVSTREAM_POLICY"));
  EXPECT_THAT(status.message(), HasSubstr("shortest-queue"));
}

TEST_F(SettingsOfAnEngine, PrintEachValueWithItsSource) {
  ASSERT_TRUE(table.set("policy", "pooled", kEnvironment).is_ok());
  EXPECT_THAT(table.to_text(), HasSubstr("policy = pooled (environment)\n"));
  EXPECT_THAT(table.to_text(), HasSubstr("pool = 256MiB (default)\n"));
  const nlohmann::json json = table.to_json();
  EXPECT_EQ(json.at("policy").at("value"), "pooled");
  EXPECT_EQ(json.at("policy").at("source"), "environment");
  EXPECT_EQ(json.at("pool").at("value"), 256U << 20U);
  EXPECT_EQ(json.at("pool").at("unit"), "B");
  EXPECT_EQ(json.at("lease").at("value"), 30.0);
  EXPECT_EQ(json.at("hedge").at("value"), true);
  EXPECT_EQ(json.size(), table.entries().size());
}

TEST_F(SettingsOfAnEngine, TakeBackTheTextThatTheyPrint) {
  for (const SettingEntry& entry : table.entries()) {
    const std::string text = table.value_text(entry.name);
    EXPECT_TRUE(table.set(entry.name, text, kCommandLine).is_ok()) << entry.name << "=" << text;
    EXPECT_EQ(table.value_text(entry.name), text);
  }
}

TEST_F(SettingsOfAnEngine, AreAtMost30EachWithHelpAndAName) {
  EXPECT_LE(table.entries().size(), 30U);
  std::set<std::string> names;
  for (const SettingEntry& entry : table.entries()) {
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_THAT(table.help(SettingsTable::HelpForm::kText), HasSubstr("--" + entry.name + " "));
    EXPECT_THAT(table.help(SettingsTable::HelpForm::kMarkdown), HasSubstr("`" + entry.name + "`"));
  }
}

TEST(NearestName, IsEmptyWhenNothingIsNear) {
  const std::vector<std::string> known = {"pool", "policy"};
  EXPECT_EQ(nearest_name("pol", known), "pool");
  EXPECT_EQ(nearest_name("policies", known), "policy");
  EXPECT_EQ(nearest_name("zzz", known), "");
  EXPECT_EQ(nearest_name("", {}), "");
}

}  // namespace
}  // namespace kvstream
