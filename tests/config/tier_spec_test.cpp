#include "config/tier_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvstream {
namespace {

using testing::HasSubstr;

TEST(TierSpec, ReadsEveryField) {
  const Result<TierSpec> spec = parse_tier_spec(
      "nvme0=nvme:/mnt/a b/{node},cap=2GiB,read=500MB/s,write=400MB/s,latency=1ms,nominal=450MB/s");
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->name, "nvme0");
  EXPECT_EQ(spec->kind, "nvme");
  EXPECT_EQ(spec->path, "/mnt/a b/{node}");
  EXPECT_EQ(spec->cap_bytes, 2ULL << 30U);
  EXPECT_EQ(spec->throttle.read_bytes_per_s, 500'000'000U);
  EXPECT_EQ(spec->throttle.write_bytes_per_s, 400'000'000U);
  EXPECT_EQ(spec->throttle.latency_ns, kMillisecond);
  EXPECT_EQ(spec->nominal_read_bytes_per_s, 450'000'000U);
}

TEST(TierSpec, NeedsNoPathNorFields) {
  const Result<TierSpec> host = parse_tier_spec("host=host,cap=1GiB");
  ASSERT_TRUE(host.has_value()) << host.error().to_string();
  EXPECT_EQ(host->path, "");
  EXPECT_FALSE(host->throttle.any());
  const Result<TierSpec> bare = parse_tier_spec("pfs=pfs:/p");
  ASSERT_TRUE(bare.has_value());
  EXPECT_EQ(bare->cap_bytes, 0U);
}

TEST(TierSpec, KeepsAColonThatIsPartOfThePath) {
  const Result<TierSpec> spec = parse_tier_spec("a=nvme:/x:y");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->path, "/x:y");
}

TEST(TierSpec, IsWrittenInTheFormThatIsRead) {
  const std::string text =
      "p=pfs:/p/{job},cap=2147483648B,read=250000000B/s,write=7B/s,latency=32000000ns,nominal=9B/s";
  const Result<TierSpec> spec = parse_tier_spec(text);
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(format_tier_spec(*spec), text);
  EXPECT_EQ(format_tier_spec(parse_tier_spec("host=host").value()), "host=host");
}

TEST(TierSpec, RefusesMistakesWithOneLineThatNamesTheCure) {
  const std::vector<std::pair<const char*, const char*>> mistakes = {
      {"", "NAME=KIND"},
      {"nvme:/x", "NAME=KIND"},
      {"nvme0,cap=1GiB", "NAME=KIND"},
      {"=nvme:/x", "one word"},
      {"a b=nvme:/x", "one word"},
      {"../a=nvme:/x", "one word"},
      {"a=:/x", "no kind"},
      {"a=nvme:/x,cap", "has no value"},
      {"a=nvme:/x,capp=1GiB", "\"cap\""},
      {"a=nvme:/x,cap=big", "2GiB"},
      {"a=nvme:/x,cap=2", "unit"},
      {"a=nvme:/x,read=fast", "500MB/s"},
      {"a=nvme:/x,latency=x", "32ms"},
      {"a=nvme:/x,cap=1GiB,cap=2GiB", "twice"},
      {"a=nvme:/x,kind=pfs", "twice"},
      {"a=nvme:/x/{host}", "{rank}"},
      {"a=nvme:/x/{rank", "{rank}"},
  };
  for (const auto& [text, part] : mistakes) {
    const Result<TierSpec> spec = parse_tier_spec(text);
    ASSERT_FALSE(spec.has_value()) << text;
    EXPECT_EQ(spec.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(spec.error().message(), HasSubstr(part)) << text;
    EXPECT_THAT(spec.error().message(), testing::Not(HasSubstr("\n"))) << text;
  }
}

TEST(TierSpec, PutsRankNodeAndJobIntoPaths) {
  const PathVariables variables{3, "n17", "abc"};
  EXPECT_EQ(expand_path("/x/{job}/{node}/r{rank}", variables), "/x/abc/n17/r3");
  EXPECT_EQ(expand_path("/plain", variables), "/plain");
  EXPECT_FALSE(expand_path("/x/{user}", variables).has_value());
  std::vector<TierSpec> tiers = {parse_tier_spec("a=nvme:/x/{rank}").value(),
                                 parse_tier_spec("host=host").value()};
  ASSERT_TRUE(expand_paths(tiers, variables).is_ok());
  EXPECT_EQ(tiers[0].path, "/x/3");
  EXPECT_EQ(tiers[1].path, "");
}

TEST(TierSpec, RefusesTwoTiersOfOneNameAndTooMany) {
  std::vector<TierSpec> tiers = {parse_tier_spec("a=host").value(),
                                 parse_tier_spec("a=nvme:/x").value()};
  EXPECT_THAT(check_tier_list(tiers).message(), HasSubstr("\"a\""));
  tiers.clear();
  for (std::size_t i = 0; i <= kTiersMax; ++i) {
    tiers.push_back(parse_tier_spec("t" + std::to_string(i) + "=host").value());
  }
  EXPECT_EQ(check_tier_list(tiers).code(), Code::kInvalidArgument);
  tiers.pop_back();
  EXPECT_TRUE(check_tier_list(tiers).is_ok());
}

}  // namespace
}  // namespace kvstream
