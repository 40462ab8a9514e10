#include "tiers/counting_tier.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

namespace kvstream {
namespace {

/// Completes what the test says, right or wrong.
class ScriptedTier final : public Tier {
 public:
  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t) override { return SlotRef{0, 0, 1}; }
  void free(SlotRef) override {}
  std::size_t submit_reads(std::span<const ReadOp> ops) override {
    return std::min(ops.size(), takes);
  }
  std::size_t submit_writes(std::span<const WriteOp> ops) override {
    return std::min(ops.size(), takes);
  }
  std::size_t poll(std::span<Completion> out) override {
    std::size_t count = 0;
    for (; count < out.size() && !done.empty(); done.pop_front()) out[count++] = done.front();
    return count;
  }
  int wait_fd() const override { return -1; }
  Nanos next_event() const override { return kNever; }
  const std::byte* view(SlotRef) const override { return nullptr; }
  std::size_t changes(std::span<CatalogChange>) override { return 0; }
  void recheck(const CatalogChange&) override {}
  Status chore() override { return {}; }
  TierReport report() const override { return {}; }

  std::size_t takes = SIZE_MAX;
  std::deque<Completion> done;

 private:
  TierTraits traits_;
};

struct Subject {
  Subject() {
    auto inner = std::make_unique<ScriptedTier>();
    script = inner.get();
    tier = std::make_unique<CountingTier>(std::move(inner));
  }
  void read(std::uint64_t id, std::uint32_t size_bytes) {
    const ReadOp op{id, {}, size_bytes, {}};
    tier->submit_reads({&op, 1});
  }
  void complete(Completion done) {
    script->done.push_back(done);
    std::array<Completion, 4> out;
    tier->poll(out);
  }
  ScriptedTier* script;
  std::unique_ptr<CountingTier> tier;
};

TEST(CountingTier, CountsOperationsBytesAndFlights) {
  Subject subject;
  std::vector<WriteOp> writes(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    writes[i].id = 10 + i;
    writes[i].size_bytes = 100;
  }
  subject.script->takes = 2;
  EXPECT_EQ(subject.tier->submit_writes(writes), 2U);
  subject.read(1, 50);
  EXPECT_EQ(subject.tier->counts().in_flight, 3U);
  subject.complete({10, Code::kOk, 100});
  subject.complete({11, Code::kIoError, 0});
  subject.complete({1, Code::kOk, 50});
  (void)subject.tier->reserve(1);
  subject.tier->free({});
  const auto counts = subject.tier->counts();
  EXPECT_EQ(counts.writes.taken, 2U);
  EXPECT_EQ(counts.writes.completed, 2U);
  EXPECT_EQ(counts.writes.failed, 1U);
  EXPECT_EQ(counts.writes.bytes, 100U);
  EXPECT_EQ(counts.reads.bytes, 50U);
  EXPECT_EQ(counts.in_flight, 0U);
  EXPECT_EQ(counts.in_flight_peak, 3U);
  EXPECT_EQ(counts.reserved, 1U);
  EXPECT_EQ(counts.freed, 1U);
  EXPECT_EQ(counts.breaches, 0U);
}

TEST(CountingTier, ASecondCompletionIsABreach) {
  Subject subject;
  subject.read(1, 50);
  subject.complete({1, Code::kOk, 50});
  EXPECT_EQ(subject.tier->counts().breaches, 0U);
  subject.complete({1, Code::kOk, 50});
  EXPECT_EQ(subject.tier->counts().breaches, 1U);
}

TEST(CountingTier, AnIdInFlightTwiceIsABreach) {
  Subject subject;
  subject.read(1, 50);
  subject.read(1, 50);
  EXPECT_EQ(subject.tier->counts().breaches, 1U);
}

TEST(CountingTier, AGoodCompletionOfAnotherSizeIsABreach) {
  Subject subject;
  subject.read(1, 50);
  subject.complete({1, Code::kOk, 49});
  EXPECT_EQ(subject.tier->counts().breaches, 1U);
}

}  // namespace
}  // namespace kvstream
