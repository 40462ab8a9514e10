#include "tiers/faulty_tier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <vector>

#include "tiers/host_tier.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kBlockBytes = 10'000;
constexpr std::byte kWritten{0x5A};

/// A faulty tier with one block in it, all bytes kWritten.
struct Subject {
  explicit Subject(const FaultPlan& plan) {
    HostTier::Options options;
    options.cap_bytes = 1U << 20U;
    options.block_bytes_max = kBlockBytes;
    tier = std::make_unique<FaultyTier>(std::move(HostTier::open(options).value()), FaultPlan{},
                                        clock);
    slot = tier->reserve(kBlockBytes).value();
    source.assign(kBlockBytes, kWritten);
    write(1000);
    EXPECT_EQ(poll().at(1000).code, Code::kOk);
    tier->set_plan(plan);
  }
  bool write(std::uint64_t id) {
    WriteOp op;
    op.id = id;
    op.at = slot;
    op.size_bytes = kBlockBytes;
    op.from = source.data();
    return tier->submit_writes({&op, 1}) == 1;
  }
  /// Into a destination of two spans that begins as zeros.
  bool read(std::uint64_t id) {
    auto& bytes = landed[id];
    bytes.assign(kBlockBytes, std::byte{0});
    spans[id] = {Span{bytes.data(), 3'000}, Span{bytes.data() + 3'000, 7'000}};
    const ReadOp op{id, slot, kBlockBytes, spans[id]};
    return tier->submit_reads({&op, 1}) == 1;
  }
  std::map<std::uint64_t, Completion> poll() {
    std::array<Completion, 64> out;
    std::map<std::uint64_t, Completion> done;
    const std::size_t count = tier->poll(out);
    for (std::size_t i = 0; i < count; ++i) done[out[i].id] = out[i];
    return done;
  }
  int wrong_bits(std::uint64_t id) const {
    int bits = 0;
    for (const std::byte byte : landed.at(id)) {
      bits += std::popcount(std::to_integer<unsigned>(byte ^ kWritten));
    }
    return bits;
  }

  FakeClock clock;
  std::unique_ptr<FaultyTier> tier;
  SlotRef slot;
  std::vector<std::byte> source;
  std::map<std::uint64_t, std::vector<std::byte>> landed;
  std::map<std::uint64_t, std::array<Span, 2>> spans;
};

/// Operation 0 of a subject is the write that fills it.
FaultPlan scripted(Fault fault, Nanos duration_ns = 0) {
  FaultPlan plan;
  plan.script = {{2, fault, duration_ns}};
  return plan;
}

TEST(FaultyTier, AnErrorHitsTheScriptedOperationAlone) {
  Subject subject(scripted(Fault::kError));
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(subject.read(id));
  const auto done = subject.poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done.at(1).code, Code::kOk);
  EXPECT_EQ(done.at(2).code, Code::kIoError);
  EXPECT_EQ(done.at(3).code, Code::kOk);
  EXPECT_EQ(subject.tier->counts().errors, 1U);
  EXPECT_EQ(subject.tier->counts().ops, 4U);
  EXPECT_EQ(subject.tier->report().errors, 1U);
}

TEST(FaultyTier, AShortReadLeavesGarbageBehindWhatItBrought) {
  Subject subject(scripted(Fault::kShort));
  ASSERT_TRUE(subject.read(1));
  ASSERT_TRUE(subject.read(2));
  const Completion done = subject.poll().at(2);
  EXPECT_EQ(done.code, Code::kIoError);
  EXPECT_LT(done.size_bytes, kBlockBytes);
  const auto& bytes = subject.landed.at(2);
  const auto kept = static_cast<std::ptrdiff_t>(done.size_bytes);
  EXPECT_EQ(std::count(bytes.begin(), bytes.begin() + kept, kWritten), kept);
  EXPECT_EQ(std::count(bytes.begin() + kept, bytes.end(), kWritten), 0);
  EXPECT_EQ(subject.tier->counts().shorts, 1U);
}

TEST(FaultyTier, AFlipIsOneWrongBitInAGoodRead) {
  Subject subject(scripted(Fault::kFlip));
  ASSERT_TRUE(subject.read(1));
  ASSERT_TRUE(subject.read(2));
  EXPECT_EQ(subject.poll().at(2).code, Code::kOk);
  EXPECT_EQ(subject.wrong_bits(1), 0);
  EXPECT_EQ(subject.wrong_bits(2), 1);
  EXPECT_EQ(subject.tier->counts().flips, 1U);
}

TEST(FaultyTier, TheBytesOfADelayedReadLandLate) {
  Subject subject(scripted(Fault::kDelay, kSecond));
  ASSERT_TRUE(subject.read(1));
  ASSERT_TRUE(subject.read(2));
  EXPECT_EQ(subject.poll().size(), 1U);
  EXPECT_EQ(subject.tier->next_event(), kSecond);
  EXPECT_EQ(subject.landed.at(2)[0], std::byte{0});
  subject.clock.set(kSecond - 1);
  EXPECT_TRUE(subject.poll().empty());
  subject.clock.set(kSecond);
  EXPECT_EQ(subject.poll().at(2).code, Code::kOk);
  EXPECT_EQ(subject.wrong_bits(2), 0);
  EXPECT_EQ(subject.tier->counts().delays, 1U);
}

TEST(FaultyTier, AStallLastsUntilItIsReleased) {
  Subject subject(scripted(Fault::kStall, kNever));
  ASSERT_TRUE(subject.read(1));
  ASSERT_TRUE(subject.write(2));
  EXPECT_EQ(subject.poll().size(), 1U);
  EXPECT_EQ(subject.tier->next_event(), kNever);
  subject.clock.set(kNever / 2);
  EXPECT_TRUE(subject.poll().empty());
  subject.tier->release_stalled();
  EXPECT_LE(subject.tier->next_event(), subject.clock.now());
  EXPECT_EQ(subject.poll().at(2).code, Code::kOk);
  EXPECT_EQ(subject.tier->counts().stalls, 1U);
}

TEST(FaultyTier, WhatIsStalledCountsAsInFlight) {
  FaultPlan plan;
  plan.reads.stall = 1;
  Subject subject(plan);
  std::uint64_t taken = 0;
  while (taken < 1000 && subject.read(taken + 1)) ++taken;
  EXPECT_EQ(taken, subject.tier->traits().in_flight_max);
  subject.tier->release_stalled();
  EXPECT_EQ(subject.poll().size(), taken);
}

TEST(FaultyTier, OddsAreKeptAndCountedForReadsAndWritesApart) {
  FaultPlan plan;
  plan.seed = 7;
  plan.reads.error = 0.1;
  plan.reads.flip = 0.2;
  plan.writes.error = 0.5;
  Subject subject(plan);
  std::uint64_t read_errors = 0, flipped = 0, write_errors = 0;
  for (std::uint64_t id = 1; id <= 2000; ++id) {
    ASSERT_TRUE(subject.read(1));
    if (subject.poll().at(1).code != Code::kOk) {
      ++read_errors;
    } else {
      flipped += subject.wrong_bits(1) != 0 ? 1 : 0;
    }
    ASSERT_TRUE(subject.write(2));
    write_errors += subject.poll().at(2).code != Code::kOk ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(read_errors), 200, 60);
  EXPECT_NEAR(static_cast<double>(flipped), 400, 80);
  EXPECT_NEAR(static_cast<double>(write_errors), 1000, 120);
  EXPECT_EQ(subject.tier->counts().errors, read_errors + write_errors);
  EXPECT_EQ(subject.tier->counts().flips, flipped);
}

TEST(FaultyTier, TheSameSeedGivesTheSameFaults) {
  FaultPlan plan;
  plan.reads.error = plan.reads.short_transfer = plan.reads.flip = 0.2;
  const auto outcome = [&plan](std::uint64_t seed) {
    plan.seed = seed;
    Subject subject(plan);
    std::vector<std::pair<std::uint32_t, int>> seen;
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(subject.read(1));
      const Completion done = subject.poll().at(1);
      seen.emplace_back(done.size_bytes, subject.wrong_bits(1));
    }
    return seen;
  };
  EXPECT_EQ(outcome(3), outcome(3));
  EXPECT_NE(outcome(3), outcome(4));
}

TEST(FaultyTier, ItsBytesAreNeitherTrustedNorToBeHadInPlace) {
  Subject subject(FaultPlan{});
  EXPECT_FALSE(subject.tier->traits().trusted);
  EXPECT_FALSE(subject.tier->traits().addressable);
  EXPECT_EQ(subject.tier->view(subject.slot), nullptr);
}

}  // namespace
}  // namespace kvstream
