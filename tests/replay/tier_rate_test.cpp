#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "replay/calibration.hpp"

namespace kvstream {
namespace {

/// Completes reads in turn at a fixed rate of the real clock; its schedule catches up after a
/// delay, so a busy machine disturbs single completions and not the sum.
class PacedTier final : public Tier {
 public:
  explicit PacedTier(double rate_bytes_per_s) : rate_(rate_bytes_per_s) {
    traits_.name = "paced";
    traits_.device_id = "paced-device";
    traits_.in_flight_max = 4;
  }

  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t) override { return failure(Code::kNoSpace, "read only"); }
  void free(SlotRef) override {}
  std::size_t submit_reads(std::span<const ReadOp> ops) override {
    std::size_t taken = 0;
    for (const ReadOp& op : ops) {
      if (queue_.size() == traits_.in_flight_max) break;
      const Nanos now = SteadyClock::instance().now();
      free_at_ = std::max(free_at_ == 0 ? now : free_at_, now - 20 * kMillisecond) +
                 static_cast<Nanos>(op.size_bytes / rate_ * 1e9);
      std::memset(op.into[0].data, 1, op.into[0].size_bytes);
      queue_.push_back({free_at_, {op.id, fail_ ? Code::kIoError : Code::kOk, op.size_bytes}});
      in_flight_most_ = std::max(in_flight_most_, queue_.size());
      ++taken;
    }
    return taken;
  }
  std::size_t submit_writes(std::span<const WriteOp>) override { return 0; }
  std::size_t poll(std::span<Completion> out) override {
    std::size_t count = 0;
    while (count < out.size() && !queue_.empty() &&
           queue_.front().first <= SteadyClock::instance().now()) {
      out[count++] = queue_.front().second;
      queue_.pop_front();
    }
    return count;
  }
  int wait_fd() const override { return -1; }
  Nanos next_event() const override { return queue_.empty() ? kNever : queue_.front().first; }
  const std::byte* view(SlotRef) const override { return nullptr; }
  std::size_t changes(std::span<CatalogChange>) override { return 0; }
  void recheck(const CatalogChange&) override {}
  Status chore() override { return Status::ok(); }
  TierReport report() const override { return {}; }

  void fail() { fail_ = true; }
  std::size_t in_flight_most() const { return in_flight_most_; }
  bool idle() const { return queue_.empty(); }

 private:
  TierTraits traits_;
  double rate_;
  Nanos free_at_ = 0;
  bool fail_ = false;
  std::size_t in_flight_most_ = 0;
  std::deque<std::pair<Nanos, Completion>> queue_;
};

constexpr CalibrationOptions kShort = {
    .threads = 1, .discard_ns = 50 * kMillisecond, .measure_ns = 400 * kMillisecond};

TEST(TierRate, ReadsThroughTheTierFindItsRate) {
  PacedTier tier(50e6);
  const std::vector<TierSlot> slots = {{{0, 0, 1}, 65536}, {{0, 1, 1}, 65536}};
  const auto rate = measure_tier_rate(tier, slots, 8, kShort);
  ASSERT_TRUE(rate) << rate.error().message();
  EXPECT_EQ(rate->device_id, "paced-device");
  // From below only roughly: a loaded machine may let this thread run late.
  EXPECT_LT(rate->bytes_per_s, 1.2 * 50e6);
  EXPECT_GT(rate->bytes_per_s, 0.2 * 50e6);
  EXPECT_EQ(tier.in_flight_most(), 4u) << "the tier takes no more";
  EXPECT_TRUE(tier.idle());
}

TEST(TierRate, AFailedReadIsAnErrorAndNothingStaysInFlight) {
  PacedTier tier(50e6);
  tier.fail();
  const auto rate = measure_tier_rate(tier, std::vector<TierSlot>{{{0, 0, 1}, 4096}}, 4, kShort);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), Code::kIoError);
  EXPECT_TRUE(tier.idle());
}

TEST(TierRate, ATierWithoutSlotsIsAnError) {
  PacedTier tier(50e6);
  EXPECT_FALSE(measure_tier_rate(tier, {}, 4, kShort));
}

}  // namespace
}  // namespace kvstream
