#include "replay/calibration.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace kvstream {
namespace {

constexpr CalibrationOptions kShort = {
    .threads = 2, .discard_ns = 20 * kMillisecond, .measure_ns = 200 * kMillisecond};

class ScratchDirectory {
 public:
  ScratchDirectory() {
    const char* base = std::getenv("TMPDIR");
    std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/calibration.XXXXXX";
    path_ = ::mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// A device that takes no time.
CalibrationTarget instant(const std::string& id, std::atomic<std::uint64_t>& given) {
  CalibrationTarget target;
  target.device_id = id;
  target.sizes_bytes = {4096, 8192};
  target.read = [&given, sizes = target.sizes_bytes](std::size_t index, std::byte* into) {
    into[0] = std::byte{1};
    given += sizes[index];
    return Result<std::uint64_t>(sizes[index]);
  };
  return target;
}

TEST(Calibration, SlopeIsExactOnALine) {
  std::vector<RateSample> line;
  for (int i = 0; i < 10; ++i) line.push_back({i * 0.1, 7 + i * 50.0});
  EXPECT_NEAR(slope_bytes_per_s(line), 500, 1e-9);
  EXPECT_EQ(slope_bytes_per_s({}), 0);
}

TEST(Calibration, SlopeOfAThrottlesBurstsIsWithinOnePercentWhereverTheWindowBegins) {
  // 50 MB every 100 ms, seen each 5 ms for 2 s: last minus first is up to 5 % off.
  for (int phase_ms = 0; phase_ms < 100; phase_ms += 3) {
    std::vector<RateSample> samples;
    for (int ms = 0; ms <= 2000; ms += 5) {
      samples.push_back({ms * 1e-3, 50e6 * std::floor((ms + phase_ms) / 100.0)});
    }
    EXPECT_NEAR(slope_bytes_per_s(samples) / 500e6, 1.0, 0.01) << phase_ms;
  }
}

TEST(Calibration, AllTargetsAreReadAtTheSameTimeAndCountedApart) {
  std::atomic<std::uint64_t> a{0}, b{0};
  const std::vector<CalibrationTarget> targets = {instant("a", a), instant("b", b)};
  const auto rates = measure_rates(targets, kShort);
  ASSERT_TRUE(rates) << rates.error().message();
  ASSERT_EQ(rates->size(), 2u);
  EXPECT_EQ((*rates)[0].asked_bytes, a.load());
  EXPECT_EQ((*rates)[1].asked_bytes, b.load());
  EXPECT_GT((*rates)[0].bytes_per_s, 0);
  EXPECT_FALSE((*rates)[0].counted_bytes);
  EXPECT_TRUE((*rates)[0].count_agrees()) << "unavailable";
}

TEST(Calibration, AnErrorEndsTheMeasurementAndIsReported) {
  std::atomic<std::uint64_t> given{0};
  CalibrationTarget broken = instant("broken", given);
  broken.read = [](std::size_t, std::byte*) -> Result<std::uint64_t> {
    return failure(Code::kIoError, "no such luck");
  };
  CalibrationOptions options = kShort;
  options.measure_ns = 600 * kSecond;
  const auto rates = measure_rates(std::vector{broken}, options);
  ASSERT_FALSE(rates);
  EXPECT_EQ(rates.error().message(), "no such luck");
}

TEST(Calibration, NothingToReadIsAnError) {
  EXPECT_FALSE(measure_rates(std::vector{CalibrationTarget{}}, kShort));
  EXPECT_FALSE(raw_target("a", {}));
  EXPECT_FALSE(raw_target("a", {{"/no/such/file", 0, 4096}}));
}

TEST(Calibration, AScratchFileIsReadFromTheDeviceAndNotFromMemory) {
  const ScratchDirectory directory;
  const auto target = scratch_target("disk", directory.file("scratch"), 16U << 20U, 1U << 20U);
  ASSERT_TRUE(target) << target.error().message();
  EXPECT_EQ(target->sizes_bytes.size(), 16u);
  const auto rates = measure_rates(std::vector{*target}, kShort);
  ASSERT_TRUE(rates) << rates.error().message();
  const DeviceRate& rate = rates->front();
  EXPECT_GT(rate.asked_bytes, 0u);
  if (!rate.counted_bytes) GTEST_SKIP() << "the file system of TMPDIR has no device of its own";
  // Others may read the same disk meanwhile: the device can only have counted more.
  EXPECT_GE(static_cast<double>(*rate.counted_bytes), 0.98 * static_cast<double>(rate.asked_bytes))
      << rate.mode;
}

TEST(Calibration, ExtentsThatAreNotAlignedAreReadInWholeSectors) {
  const ScratchDirectory directory;
  const std::string path = directory.file("scratch");
  ASSERT_TRUE(scratch_target("disk", path, 1U << 20U, 1U << 20U));
  const auto target = raw_target("disk", {{path, 5000, 6000}});
  ASSERT_TRUE(target) << target.error().message();
  auto* into = static_cast<std::byte*>(std::aligned_alloc(4096, 16384));
  const auto moved = target->read(0, into);
  std::free(into);
  ASSERT_TRUE(moved) << moved.error().message();
  EXPECT_EQ(*moved, 8192u) << "4096 to 12288 holds 5000 to 11000";
}

TEST(Calibration, AnExtentBehindTheEndOfItsFileIsAnError) {
  const ScratchDirectory directory;
  const std::string path = directory.file("scratch");
  ASSERT_TRUE(scratch_target("disk", path, 1U << 20U, 1U << 20U));
  const auto target = raw_target("disk", {{path, 1U << 20U, 4096}});
  ASSERT_TRUE(target);
  EXPECT_FALSE(measure_rates(std::vector{*target}, kShort));
}

TEST(Calibration, AScratchFileNeverReplacesAnother) {
  const ScratchDirectory directory;
  const std::string path = directory.file("scratch");
  ASSERT_TRUE(scratch_target("disk", path, 1U << 20U, 1U << 20U));
  EXPECT_FALSE(scratch_target("disk", path, 1U << 20U, 1U << 20U));
  EXPECT_EQ(std::filesystem::file_size(path), 1U << 20U);
}

TEST(Calibration, TheDevicesOwnCountMayDifferByTwoPercent) {
  DeviceRate rate{"a", 1, 1000, 1020, ""};
  EXPECT_TRUE(rate.count_agrees());
  rate.counted_bytes = 1021;
  EXPECT_FALSE(rate.count_agrees());
  rate.counted_bytes = 0;
  EXPECT_FALSE(rate.count_agrees()) << "came from the page cache";
}

TEST(Calibration, AThrottledTierMustGiveItsRateWithinTwoPercent) {
  DeviceRate rate{"a", 495e6, 0, {}, ""};
  EXPECT_TRUE(check_throttled_rate(rate, 500'000'000).is_ok());
  rate.bytes_per_s = 480e6;
  EXPECT_FALSE(check_throttled_rate(rate, 500'000'000).is_ok());
  rate.bytes_per_s = 520e6;
  EXPECT_FALSE(check_throttled_rate(rate, 500'000'000).is_ok());
}

TEST(Calibration, TheHigherOfBeforeAndAfterCountsAndDriftMarksTheRun) {
  Calibration before, after;
  before.alone = {{"a", 100, 0, {}, "O_DIRECT"}, {"b", 200, 1000, 900, ""}, {"c", 5, 0, {}, ""}};
  after.alone = {{"b", 190, 0, {}, ""}, {"a", 104, 0, {}, ""}};
  before.joint = {{"a", 80, 0, {}, ""}};
  after.joint = {{"a", 70, 0, {}, ""}};
  std::vector<CalibratedDevice> devices = combine(before, after);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].rate_bytes_per_s, 104);
  EXPECT_EQ(devices[0].joint_rate_bytes_per_s, 80);
  EXPECT_FALSE(devices[0].drifted) << devices[0].drift;
  EXPECT_EQ(devices[1].rate_bytes_per_s, 200);
  EXPECT_FALSE(devices[1].count_agrees);
  EXPECT_EQ(devices[2].rate_bytes_per_s, 5) << "gone after the run";
  after.alone[1].bytes_per_s = 106;
  EXPECT_TRUE(combine(before, after)[0].drifted);
}

TEST(Calibration, ADeviceWhoseOwnCountIsOffMarksTheRunAndSaysByHowMuch) {
  Calibration before, after;
  before.alone = {{"a", 100, 1000, 1020, ""}, {"b", 200, 1000, {}, ""}};
  EXPECT_TRUE(marks_of(combine(before, after)).empty());
  after.alone = {{"a", 100, 1000, 1070, ""}};
  const auto marks = marks_of(combine(before, after));
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_NE(marks[0].find("device a"), std::string::npos) << marks[0];
  EXPECT_NE(marks[0].find("7.0 %"), std::string::npos) << marks[0];
  after.alone[0].bytes_per_s = 50;
  EXPECT_EQ(marks_of(combine(before, after)).size(), 2u) << "drift is a mark of its own";
}

TEST(Calibration, HostMemoryHasACopyRate) {
  EXPECT_GT(measure_copy_rate(1U << 20U, kMillisecond), 1e6);
}

TEST(Calibration, JsonSaysWhereADeviceHasNoCount) {
  Calibration calibration;
  calibration.alone = {{"a", 100, 50, {}, "O_DIRECT"}, {"b", 100, 50, 50, "O_DIRECT"}};
  const nlohmann::json json = to_json(calibration);
  EXPECT_EQ(json["alone"][0]["device_counted_bytes"], "unavailable");
  EXPECT_EQ(json["alone"][1]["device_counted_bytes"], 50);
}

}  // namespace
}  // namespace kvstream
