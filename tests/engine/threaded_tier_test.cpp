#include "engine/threaded_tier.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

namespace kvstream {
namespace {

/// Outlives the tier, which an abandoned thread keeps for ever.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  std::atomic<int> inside{0}, inside_max{0};
  std::atomic<bool> tier_destroyed{false};

  void pass() {
    const int now = ++inside;
    int seen = inside_max.load();
    while (now > seen && !inside_max.compare_exchange_weak(seen, now)) {
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return open; });
    --inside;
  }
  void set(bool to) {
    const std::lock_guard lock(mutex);
    open = to;
    changed.notify_all();
  }
};

class GatedTier final : public BlockingTier {
 public:
  explicit GatedTier(Gate& gate) : gate_(gate) {
    traits_.name = "gated";
    traits_.io_threads = 3;
    traits_.in_flight_max = 8;
  }
  ~GatedTier() override { gate_.tier_destroyed = true; }
  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t) override { return SlotRef{}; }
  void free(SlotRef) override {}
  Result<std::uint32_t> read(const ReadOp& op) override {
    gate_.pass();
    if (op.id % 5 == 0) return failure(Code::kIoError, "every fifth fails");
    return op.size_bytes;
  }
  Status write(const WriteOp&) override {
    gate_.pass();
    return Status::ok();
  }
  std::size_t changes(std::span<CatalogChange>) override { return 0; }
  void recheck(const CatalogChange&) override {}
  Status chore() override { return Status::ok(); }
  TierReport report() const override { return {}; }

 private:
  Gate& gate_;
  TierTraits traits_;
};

bool wait_readable(int fd) {
  pollfd poll_fd{fd, POLLIN, 0};
  return ::poll(&poll_fd, 1, 10'000) == 1;
}

TEST(ThreadedTier, EveryOperationCompletesOnceWithItsOwnResult) {
  Gate gate;
  auto tier = ThreadedTier::open(std::make_unique<GatedTier>(gate), SteadyClock::instance());
  std::set<std::uint64_t> seen;
  std::uint64_t submitted = 0;
  Completion out[4];
  for (int round = 0; round < 10'000 && seen.size() < 500; ++round) {
    while (submitted < 500) {
      const ReadOp op{submitted, {}, 100, {}};
      if (tier->submit_reads({&op, 1}) == 0) break;
      ++submitted;
    }
    ASSERT_TRUE(wait_readable(tier->wait_fd()));
    const auto count = tier->poll(out);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(seen.insert(out[i].id).second);
      EXPECT_EQ(out[i].code, out[i].id % 5 == 0 ? Code::kIoError : Code::kOk);
    }
  }
  EXPECT_EQ(seen.size(), 500U);
  EXPECT_TRUE(tier->close(10 * kSecond));
}

TEST(ThreadedTier, TakesNoMoreThanInFlightMaxAndUsesAllItsThreads) {
  Gate gate;
  gate.set(false);
  auto tier = ThreadedTier::open(std::make_unique<GatedTier>(gate), SteadyClock::instance());
  std::vector<ReadOp> ops(20);
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].id = i + 1;
  EXPECT_EQ(tier->submit_reads(ops), 8U);
  EXPECT_EQ(tier->submit_reads(ops), 0U);
  gate.set(true);
  std::size_t completed = 0;
  Completion out[16];
  while (completed < 8 && wait_readable(tier->wait_fd())) completed += tier->poll(out);
  EXPECT_EQ(completed, 8U);
  EXPECT_EQ(tier->submit_reads(ops), 8U);
  EXPECT_TRUE(tier->close(10 * kSecond));
  EXPECT_LE(gate.inside_max.load(), 3);
}

TEST(ThreadedTier, AThreadStuckInTheKernelIsAbandonedWithItsTierInTime) {
  static Gate gate;  // the abandoned thread passes it after the test
  gate.set(false);
  auto tier = ThreadedTier::open(std::make_unique<GatedTier>(gate), SteadyClock::instance());
  const WriteOp op{1, {}, {}, 100, 0, nullptr};
  ASSERT_EQ(tier->submit_writes({&op, 1}), 1U);
  const Nanos began = SteadyClock::instance().now();
  EXPECT_FALSE(tier->close(50 * kMillisecond));
  EXPECT_LT(SteadyClock::instance().now() - began, 5 * kSecond);
  tier.reset();
  EXPECT_FALSE(gate.tier_destroyed.load());
  gate.set(true);
}

}  // namespace
}  // namespace kvstream
