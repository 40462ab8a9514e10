#include "core/units.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace kvstream {
namespace {

using testing::HasSubstr;

TEST(Units, ReadsSizesInPowersOf1000And1024) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("1048576"), 1U << 20U);
  EXPECT_EQ(parse_size("4096B"), 4096U);
  EXPECT_EQ(parse_size("2MB"), 2'000'000U);
  EXPECT_EQ(parse_size("2MiB"), 2U << 20U);
  EXPECT_EQ(parse_size("2M"), 2U << 20U);
  EXPECT_EQ(parse_size("3.5GiB"), 3'758'096'384U);
  EXPECT_EQ(parse_size(" 1.5 kB "), 1500U);
  EXPECT_EQ(parse_size("16TiB"), 16ULL << 40U);
}

TEST(Units, KeepsLargeWholeSizesExact) {
  EXPECT_EQ(parse_size("18446744073709551615"), 18446744073709551615ULL);
  EXPECT_EQ(parse_size("9007199254740993"), 9007199254740993ULL);
}

TEST(Units, RefusesWhatIsNoSizeAndSaysHowToWriteOne) {
  for (const char* text : {"", "GiB", "-1", "1XB", "1 GiB/s", "nan", "inf", "1e3", "0x10",
                           "18446744073709551616", "99999999TiB", "1,5GB"}) {
    const Result<std::uint64_t> size = parse_size(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_EQ(size.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(size.error().message(), HasSubstr("2GiB"));
  }
}

TEST(Units, ReadsRatesWithOrWithoutPerSecond) {
  EXPECT_EQ(parse_rate("500MB/s"), 500'000'000U);
  EXPECT_EQ(parse_rate("2GiB"), 2ULL << 30U);
  EXPECT_FALSE(parse_rate("500MB/h").has_value());
}

TEST(Units, ReadsDurationsAndTakesABareNumberForSeconds) {
  EXPECT_EQ(parse_duration("250us"), 250 * kMicrosecond);
  EXPECT_EQ(parse_duration("1.5ms"), 1500 * kMicrosecond);
  EXPECT_EQ(parse_duration("30"), 30 * kSecond);
  EXPECT_EQ(parse_duration("5min"), 300 * kSecond);
  EXPECT_EQ(parse_duration("1h"), 3600 * kSecond);
  EXPECT_EQ(parse_duration("7ns"), 7);
  EXPECT_FALSE(parse_duration("5 minutes").has_value());
  EXPECT_FALSE(parse_duration("9999999999h").has_value());
}

TEST(Units, ReadsFractionsGreaterThanZero) {
  EXPECT_DOUBLE_EQ(parse_fraction("1/256").value(), 1.0 / 256);
  EXPECT_DOUBLE_EQ(parse_fraction("0.05").value(), 0.05);
  EXPECT_DOUBLE_EQ(parse_fraction("3/2").value(), 1.5);
  for (const char* text : {"0", "1/0", "0/5", "1/", "/2", "1/2/3", "-1/2", "half"}) {
    EXPECT_FALSE(parse_fraction(text).has_value()) << text;
  }
}

TEST(Units, WritesForPeople) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(3'758'096'384U), "3.5 GiB");
  EXPECT_EQ(format_size((1U << 20U) - 1), "1 MiB");
  EXPECT_EQ(format_rate(500e6), "500 MB/s");
  EXPECT_EQ(format_rate(0), "0 B/s");
  EXPECT_EQ(format_rate(999.9e6), "1 GB/s");
  EXPECT_EQ(format_duration(12'300'000), "12.3 ms");
  EXPECT_EQ(format_duration(0), "0 ns");
  EXPECT_EQ(format_duration(-1500), "-1.5 us");
  EXPECT_EQ(format_duration(90 * kSecond), "90 s");
  EXPECT_EQ(format_duration(300 * kSecond), "5 min");
  EXPECT_EQ(format_duration(kNever), "never");
}

TEST(Units, ReadsBackWhatItWritesWithinItsRounding) {
  std::mt19937_64 random(20260101);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bytes = random() >> (random() % 40 + 8);
    const std::string text = format_size(bytes);
    const Result<std::uint64_t> back = parse_size(text);
    ASSERT_TRUE(back.has_value()) << text;
    EXPECT_NEAR(static_cast<double>(*back), static_cast<double>(bytes),
                0.051 * static_cast<double>(bytes) + 0.5)
        << text;
  }
}

}  // namespace
}  // namespace kvstream
