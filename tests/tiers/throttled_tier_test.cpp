#include "tiers/throttled_tier.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <fstream>
#include <thread>
#include <vector>

#include "tiers/host_tier.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream {
namespace {

using test::TempDirectory;

constexpr std::uint32_t kBlockBytes = 64U << 10U;

std::unique_ptr<Tier> memory_tier() {
  HostTier::Options options;
  options.cap_bytes = 2U << 20U;
  options.block_bytes_max = kBlockBytes;
  auto tier = HostTier::open(options);
  EXPECT_TRUE(tier) << tier.error().to_string();
  return std::move(*tier);
}

std::shared_ptr<ThrottleControl> control_of(const std::string& root, const ThrottleSpec& spec) {
  auto control = ThrottleControl::open(root, spec);
  EXPECT_TRUE(control) << control.error().to_string();
  return *control;
}

/// A throttled tier that holds one block, read or written again and again.
struct Subject {
  Subject(std::shared_ptr<ThrottleControl> control, FakeClock& clock)
      : tier(memory_tier(), std::move(control), clock),
        bytes(kBlockBytes),
        span{bytes.data(), kBlockBytes} {
    slot = tier.reserve(kBlockBytes).value();
    tier.control()->bypass(Bypass::kOn);
    EXPECT_TRUE(write());
    std::array<Completion, 1> done;
    EXPECT_EQ(tier.poll(done), 1U);
    tier.control()->bypass(Bypass::kOff);
  }
  bool read() {
    const ReadOp op{next_id++, slot, kBlockBytes, {&span, 1}};
    return tier.submit_reads({&op, 1}) == 1;
  }
  bool write() {
    WriteOp op;
    op.id = next_id++;
    op.at = slot;
    op.size_bytes = kBlockBytes;
    op.from = bytes.data();
    return tier.submit_writes({&op, 1}) == 1;
  }
  std::size_t poll() {
    std::array<Completion, 64> done;
    return tier.poll(done);
  }

  ThrottledTier tier;
  std::vector<std::byte> bytes;
  Span span;
  SlotRef slot;
  std::uint64_t next_id = 1;
};

/// Keeps `window` reads out on each subject, asleep from event to event, until `count` are done;
/// says how long that took.
Nanos run_reads(FakeClock& clock, std::vector<Subject*> subjects, std::size_t window,
                std::size_t count) {
  const Nanos start = clock.now();
  std::size_t done = 0;
  for (Subject* subject : subjects) {
    for (std::size_t i = 0; i < window; ++i) EXPECT_TRUE(subject->read());
  }
  while (done < count) {
    Nanos next = kNever;
    for (Subject* subject : subjects) next = std::min(next, subject->tier.next_event());
    if (next == kNever) {
      ADD_FAILURE() << "nothing is announced after " << done << " reads";
      return 0;
    }
    clock.set(std::max(clock.now(), next));
    for (Subject* subject : subjects) {
      const std::size_t got = subject->poll();
      done += got;
      for (std::size_t i = 0; i < got; ++i) EXPECT_TRUE(subject->read());
    }
  }
  return clock.now() - start;
}

double rate_of(std::size_t count, Nanos elapsed) {
  return static_cast<double>(count) * kBlockBytes / (static_cast<double>(elapsed) * 1e-9);
}

TEST(ThrottledTier, KeepsItsRateWithinTwoPercent) {
  for (const std::uint64_t rate : {50'000'000U, 500'000'000U, 2'000'000'000U}) {
    FakeClock clock;
    clock.set(kSecond);
    Subject subject(control_of("", {rate, 0, 0}), clock);
    const std::size_t count = rate / kBlockBytes;  // a second's worth
    const double measured = rate_of(count, run_reads(clock, {&subject}, 4, count));
    EXPECT_NEAR(measured / static_cast<double>(rate), 1.0, 0.02) << rate;
  }
}

TEST(ThrottledTier, NeverGivesMoreThanRateAndBurst) {
  FakeClock clock;
  clock.set(kSecond);
  const auto control = control_of("", {500'000'000, 0, 0});
  Subject subject(control, clock);
  EXPECT_EQ(control->burst_bytes(Direction::kRead), 2'500'000U);
  const Nanos start = clock.now();
  std::uint64_t bytes = 0;
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(subject.read());
  while (bytes < 60 * kBlockBytes) {
    clock.set(std::max(clock.now(), subject.tier.next_event()));
    bytes += subject.poll() * kBlockBytes;
    EXPECT_LE(bytes, 2'500'000 + (clock.now() - start) / 2 + 1);
  }
}

TEST(ThrottledTier, AnIdleGapEarnsFiveMillisecondsAndNoMore) {
  FakeClock clock;
  clock.set(kSecond);
  Subject subject(control_of("", {500'000'000, 0, 0}), clock);
  for (const Nanos gap : {Nanos{0}, 5 * kMillisecond, 60 * kSecond}) {
    clock.advance(gap);
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(subject.read());
    const std::size_t at_once = subject.poll();
    EXPECT_EQ(at_once, 2'500'000U / kBlockBytes) << "after a gap of " << gap << " ns";
    while (subject.tier.next_event() != kNever) {
      clock.set(subject.tier.next_event());
      subject.poll();
    }
  }
}

TEST(ThrottledTier, ReadsAndWritesHaveABucketEach) {
  FakeClock clock;
  clock.set(kSecond);
  Subject subject(control_of("", {100'000'000, 10'000'000, 0}), clock);
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(subject.read());
  ASSERT_TRUE(subject.write());
  // 64 KiB at 10 MB/s take 6.55 ms, less the burst; sixteen reads 10.5 ms, less the burst.
  clock.advance(1'553'600);
  EXPECT_EQ(subject.poll(), 11U) << "10 reads and the write";
  clock.advance(10 * kMillisecond);
  EXPECT_EQ(subject.poll(), 6U);
}

TEST(ThrottledTier, TwoOfOneDirectoryHaveTheRateTogether) {
  const TempDirectory directory;
  FakeClock clock;
  clock.set(kSecond);
  Subject first(control_of(directory.path(), {500'000'000, 0, 0}), clock);
  Subject second(control_of(directory.path(), {500'000'000, 0, 0}), clock);
  const std::size_t count = 500'000'000 / kBlockBytes;
  const double measured = rate_of(count, run_reads(clock, {&first, &second}, 4, count));
  EXPECT_NEAR(measured / 5e8, 1.0, 0.02);
}

TEST(ThrottledTier, TwoOfTwoDirectoriesHaveTheRateEach) {
  const TempDirectory one, other;
  FakeClock clock;
  clock.set(kSecond);
  Subject first(control_of(one.path(), {500'000'000, 0, 0}), clock);
  Subject second(control_of(other.path(), {500'000'000, 0, 0}), clock);
  const std::size_t count = 500'000'000 / kBlockBytes;
  const double measured = rate_of(count, run_reads(clock, {&first, &second}, 4, count));
  EXPECT_NEAR(measured / 1e9, 1.0, 0.02);
}

TEST(ThrottledTier, ANewRateHoldsForAllThatShareTheDevice) {
  const TempDirectory directory;
  FakeClock clock;
  clock.set(kSecond);
  const auto steering = control_of(directory.path(), {500'000'000, 400'000'000, 0});
  Subject first(control_of(directory.path(), {500'000'000, 400'000'000, 0}), clock);
  Subject second(control_of(directory.path(), {500'000'000, 400'000'000, 0}), clock);
  steering->set_rates({50'000'000, 40'000'000});
  EXPECT_EQ(first.tier.control()->rates(), (ThrottleControl::Rates{50'000'000, 40'000'000}));
  EXPECT_EQ(steering->rates_at_open(), (ThrottleControl::Rates{500'000'000, 400'000'000}));
  const double measured = rate_of(760, run_reads(clock, {&first, &second}, 4, 760));
  EXPECT_NEAR(measured / 5e7, 1.0, 0.02);
}

TEST(ThrottledTier, LatencyIsAddedToEachOperationAndCostsNoRate) {
  FakeClock clock;
  clock.set(kSecond);
  Subject subject(control_of("", {500'000'000, 0, 32 * kMillisecond}), clock);
  ASSERT_TRUE(subject.read());
  EXPECT_EQ(subject.tier.next_event(), 0) << "what the tier inside has is to be polled at once";
  EXPECT_EQ(subject.poll(), 0U);
  EXPECT_EQ(subject.tier.next_event(), clock.now() + 32 * kMillisecond);
  clock.advance(32 * kMillisecond - 1);
  EXPECT_EQ(subject.poll(), 0U);
  clock.advance(1);
  EXPECT_EQ(subject.poll(), 1U);
  const double measured = rate_of(7600, run_reads(clock, {&subject}, 60, 7600));
  // 60 blocks every 32 ms are 123 MB/s.
  EXPECT_NEAR(measured / (60.0 * kBlockBytes / 0.032), 1.0, 0.02);
}

TEST(ThrottledTier, BypassFreesWhatIsHeldBack) {
  FakeClock clock;
  clock.set(kSecond);
  const auto control = control_of("", {1'000'000, 1'000'000, kMillisecond});
  Subject subject(control, clock);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(subject.write());
  EXPECT_EQ(subject.poll(), 0U);
  control->bypass(Bypass::kOn);
  EXPECT_LE(subject.tier.next_event(), clock.now());
  EXPECT_EQ(subject.poll(), 3U);
}

TEST(ThrottledTier, BypassCostsNoTimeAndLeavesNoDebt) {
  FakeClock clock;
  clock.set(kSecond);
  const auto control = control_of("", {1'000'000, 1'000'000, kMillisecond});
  Subject subject(control, clock);
  control->bypass(Bypass::kOn);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(subject.write());
    ASSERT_EQ(subject.poll(), 1U);
  }
  EXPECT_THAT(subject.tier.report().mode, testing::HasSubstr("+throttled(bypassed)"));
  control->bypass(Bypass::kOff);
  ASSERT_TRUE(subject.write());
  EXPECT_EQ(subject.poll(), 0U);
  // One block at 1 MB/s, less the burst, and the latency.
  EXPECT_EQ(subject.tier.next_event(), clock.now() + 65'536'000 - 5'000'000 + kMillisecond);
}

TEST(ThrottledTier, WhatIsHeldBackCountsAsInFlight) {
  FakeClock clock;
  clock.set(kSecond);
  Subject subject(control_of("", {1'000'000, 0, 0}), clock);
  std::uint32_t taken = 0;
  while (taken < 1000 && subject.read()) {
    ++taken;
    subject.poll();
  }
  EXPECT_EQ(taken, subject.tier.traits().in_flight_max);
}

TEST(ThrottledTier, BytesAreNotToBeHadAroundTheLimit) {
  FakeClock clock;
  Subject subject(control_of("", {1'000'000, 0, 0}), clock);
  EXPECT_FALSE(subject.tier.traits().addressable);
  EXPECT_EQ(subject.tier.view(subject.slot), nullptr);
}

TEST(ThrottledTier, ReportSaysHowItIsLimited) {
  FakeClock clock;
  Subject subject(control_of("", {500'000'000, 400'000'000, 0}), clock);
  EXPECT_THAT(subject.tier.report().mode, testing::EndsWith("+throttled(500 MB/s, 400 MB/s)"));
  Subject reads_only(control_of("", {500'000'000, 0, 0}), clock);
  EXPECT_THAT(reads_only.tier.report().mode, testing::EndsWith("+throttled(500 MB/s, unlimited)"));
}

TEST(ThrottleControl, TheFirstOpenerSetsUpAnewAndLaterOnesJoin) {
  const TempDirectory directory;
  {
    const auto left_over = control_of(directory.path(), {1'000, 0, 0});
    EXPECT_GT(left_over->reserve(Direction::kRead, 1U << 30U, 0), kSecond);
    left_over->bypass(Bypass::kOn);
  }
  const auto first = control_of(directory.path(), {2'000, 0, 0});
  EXPECT_EQ(first->bypass(), Bypass::kOff);
  EXPECT_EQ(first->rates().read_bytes_per_s, 2'000U);
  EXPECT_EQ(first->reserve(Direction::kRead, 2'000, 0), kSecond - ThrottleControl::kBurstNs);
  first->set_rates({3'000, 0});
  const auto later = control_of(directory.path(), {2'000, 0, 0});
  EXPECT_EQ(later->rates().read_bytes_per_s, 3'000U);
}

TEST(ThrottleControl, NoTurnIsLostAmongThreadsAndOpeners) {
  const TempDirectory directory;
  constexpr int kTurns = 1'000'000;
  std::barrier start(4);
  std::vector<std::shared_ptr<ThrottleControl>> controls;
  for (int i = 0; i < 4; ++i) controls.push_back(control_of(directory.path(), {1'000'000, 0, 0}));
  std::vector<std::thread> threads;
  for (const auto& control : controls) {
    threads.emplace_back([&control, &start] {
      start.arrive_and_wait();
      for (int i = 0; i < kTurns; ++i) control->reserve(Direction::kRead, 1'000, 0);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(controls[0]->reserve(Direction::kRead, 1'000, 0),
            (Nanos{4} * kTurns + 1) * kMillisecond - ThrottleControl::kBurstNs);
}

TEST(ThrottleControl, ADirectoryThatCannotBeMadeIsAnErrorThatNamesIt) {
  const TempDirectory directory;
  std::ofstream(directory.path() + "/file") << "x";
  const auto control = ThrottleControl::open(directory.path() + "/file/below", {1, 1, 0});
  ASSERT_FALSE(control);
  EXPECT_EQ(control.error().code(), Code::kIoError);
  EXPECT_THAT(control.error().message(), testing::HasSubstr("/file/below"));
}

}  // namespace
}  // namespace kvstream
