#include "client/tier_kinds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "docs/examples/directory_tier.hpp"
#include "tiers/host_tier.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream {
namespace {

using testing::HasSubstr;

TierSpec spec_of(const std::string& name, const std::string& kind, const std::string& path) {
  TierSpec spec;
  spec.name = name;
  spec.kind = kind;
  spec.path = path;
  spec.cap_bytes = 4U << 20U;
  return spec;
}

TierContext context_of() {
  TierContext context;
  context.block_bytes_max = 64U << 10U;
  context.clock = &SteadyClock::instance();
  return context;
}

TEST(TierKinds, KnowsWhatNeedsNoMpi) {
  const TierKinds kinds = tier_kinds();
  EXPECT_EQ(kinds.size(), 3U);
  for (const char* kind : {"host", "nvme", "pfs"}) EXPECT_TRUE(kinds.contains(kind)) << kind;
}

TEST(TierKinds, PartsKeepTheOrderOfTheSpecs) {
  const std::vector<TierSpec> specs = {spec_of("b", "host", ""), spec_of("a", "host", "")};
  const auto parts = make_tier_parts(specs, context_of(), tier_kinds());
  ASSERT_TRUE(parts) << parts.error().to_string();
  ASSERT_EQ(parts->parts.size(), 2U);
  EXPECT_EQ(parts->parts[0].spec.name, "b");
  EXPECT_EQ(parts->parts[1].spec.name, "a");
  EXPECT_FALSE(parts->parts[0].wrap);
  EXPECT_EQ(parts->throttles[0].control, nullptr);
}

TEST(TierKinds, AnUnknownKindIsNamedBesideTheKnownOnes) {
  const std::vector<TierSpec> specs = {spec_of("t", "tape", "/x")};
  const auto parts = make_tier_parts(specs, context_of(), tier_kinds());
  ASSERT_FALSE(parts);
  EXPECT_EQ(parts.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(parts.error().message(), HasSubstr("\"tape\""));
  EXPECT_THAT(parts.error().message(), HasSubstr("host, nvme, pfs"));
}

TEST(TierKinds, TwoTiersOfOneNameAreRefused) {
  const std::vector<TierSpec> specs = {spec_of("a", "host", ""), spec_of("a", "host", "")};
  EXPECT_FALSE(make_tier_parts(specs, context_of(), tier_kinds()));
}

TEST(TierKinds, AThrottledTierComesWithItsLimiter) {
  const test::TempDirectory directory;
  TierSpec spec = spec_of("d", "directory", directory.path() + "/made");
  spec.throttle = {500'000'000, 400'000'000, kMillisecond};
  TierKinds kinds = tier_kinds();
  kinds["directory"] = directory_tier_factory();
  const auto parts = make_tier_parts({&spec, 1}, context_of(), kinds);
  ASSERT_TRUE(parts) << parts.error().to_string();
  const auto& throttle = parts->throttles[0];
  EXPECT_EQ(throttle.tier, "d");
  ASSERT_NE(throttle.control, nullptr);
  EXPECT_EQ(throttle.control->rates().write_bytes_per_s, 400'000'000U);
  EXPECT_EQ(throttle.control->latency_ns(), kMillisecond);
  EXPECT_TRUE(std::filesystem::exists(spec.path + "/.throttle"));

  ASSERT_TRUE(parts->parts[0].wrap);
  auto bare = HostTier::open({.cap_bytes = 1U << 20U, .block_bytes_max = 4096});
  ASSERT_TRUE(bare) << bare.error().to_string();
  const auto wrapped = parts->parts[0].wrap(std::move(*bare));
  ASSERT_TRUE(wrapped);
  throttle.control->set_rates({50'000'000, 40'000'000});
  EXPECT_THAT((*wrapped)->report().mode, HasSubstr("+throttled(50 MB/s, 40 MB/s, "));
}

}  // namespace
}  // namespace kvstream
