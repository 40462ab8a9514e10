// The engine in a caller's hands, over modelled tiers: no thread, no byte, no time of its own.
#include "engine/driven_engine.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <optional>

#include "engine/engine_fixture.hpp"
#include "replay/model_copies.hpp"
#include "replay/model_tier.hpp"

namespace kvstream {
namespace {

/// Addresses that fault when anybody touches them.
class Nowhere {
 public:
  explicit Nowhere(std::size_t size_bytes) : size_bytes_(size_bytes) {
    data_ = ::mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Nowhere() { ::munmap(data_, size_bytes_); }
  std::byte* at(std::size_t block) const {
    return static_cast<std::byte*>(data_) + block * kTestBlock;
  }

 private:
  std::size_t size_bytes_;
  void* data_;
};

class DrivenEngineTest : public testing::Test {
 protected:
  void open(const CopiesModel& copies = {2, 8e9, 0}, Settings settings = {},
            const Mode& mode = {}) {
    clock_.set(10 * kSecond);
    settings.pool_bytes = 128ULL * kTestBlock;
    settings.block_bytes_max = kTestBlock;
    engine_.reset();
    stores_.clear();
    devices_.clear();
    std::vector<TierPart> parts;
    add_tier(parts, "nvme", Visibility::kNode, 400);
    add_tier(parts, "pfs", Visibility::kJob, 100);
    TierContext context;
    context.clock = &clock_;
    auto engine = DrivenEngine::open({settings, mode, context}, std::move(parts),
                                     std::make_unique<ModelCopies>(copies, clock_));
    ASSERT_TRUE(engine) << engine.error().message();
    engine_ = std::move(*engine);
  }
  void add_tier(std::vector<TierPart>& parts, const char* name, Visibility visibility,
                double blocks_per_s) {
    TierSpec spec{name, name, "", 64ULL * kTestBlock, {}, 0};
    const double rate = blocks_per_s * kTestBlock;
    devices_.push_back(std::make_unique<ModelDevice>(
        name, DeviceModel{rate, rate, kMillisecond, kMillisecond, 0, 0, 0}));
    stores_.push_back(
        std::make_unique<ModelStore>(ModelStore::Options{spec, visibility, kTestBlock, kSecond}));
    auto box = std::make_shared<std::unique_ptr<ModelTier>>(
        stores_.back()->open(0, 1, *devices_.back(), clock_));
    parts.push_back({spec,
                     [box](const TierSpec&, const TierContext&) -> Result<AnyTier> {
                       return AnyTier(std::unique_ptr<Tier>(std::move(*box)));
                     },
                     {}});
  }

  /// Turn after turn, time as the engine wants it, until it is idle.
  std::uint64_t run_to_rest() {
    std::uint64_t turns = 0;
    for (; turns < 100'000; ++turns) {
      const Nanos due = engine_->turn();
      if (engine_->idle()) return turns;
      EXPECT_NE(due, kNever);
      clock_.set(std::max(due, clock_.now()));
    }
    ADD_FAILURE() << "it does not come to rest";
    return turns;
  }
  SaveTicket save(std::uint64_t first, std::uint64_t count) {
    std::vector<ConstSpan> spans;
    std::vector<SaveBlock> blocks;
    for (std::uint64_t i = 0; i < count; ++i) spans.push_back({nowhere_.at(i), kTestBlock});
    for (std::uint64_t i = 0; i < count; ++i) {
      blocks.push_back(
          {test_key(first + i), kTestBlock, {&spans[i], 1}, static_cast<std::uint32_t>(i)});
    }
    return engine_->save_step({blocks, 0});
  }
  Ticket load(std::uint64_t first, std::uint64_t count, LeaseToken lease = {}, Nanos deadline = 0) {
    std::vector<Span> spans;
    std::vector<BlockRequest> blocks;
    for (std::uint64_t i = 0; i < count; ++i) spans.push_back({nowhere_.at(64 + i), kTestBlock});
    for (std::uint64_t i = 0; i < count; ++i) {
      blocks.push_back({test_key(first + i), kTestBlock, {&spans[i], 1}});
    }
    const LoadRequest request{blocks, lease};
    auto ticket = engine_->load_step({{&request, 1}, deadline});
    EXPECT_TRUE(ticket) << ticket.error().message();
    return ticket ? *ticket : nullptr;
  }
  LookupAnswer look_up(std::uint64_t first, std::uint64_t count) {
    std::vector<BlockKey> keys;
    for (std::uint64_t i = 0; i < count; ++i) keys.push_back(test_key(first + i));
    const LookupRequest asked{keys};
    return engine_->lookup({&asked, 1}).front();
  }
  static void expect_closed(const EngineStats& stats) {
    EXPECT_EQ(stats.looked_up, stats.requested + stats.recomputed_by_choice + stats.never_loaded);
    EXPECT_EQ(stats.requested, stats.hits + stats.misses + stats.late + stats.cancelled);
    EXPECT_EQ(stats.offered, stats.published + stats.dropped);
    EXPECT_EQ(stats.leases + stats.holds, 0U);
    EXPECT_EQ(stats.slabs_free, stats.slabs_all);
  }

  FakeClock clock_;
  Nowhere nowhere_{256ULL * kTestBlock};
  std::vector<std::unique_ptr<ModelDevice>> devices_;
  std::vector<std::unique_ptr<ModelStore>> stores_;
  std::unique_ptr<DrivenEngine> engine_;
};

TEST_F(DrivenEngineTest, SavesAndLoadsWithoutTouchingAByte) {
  open();
  const SaveTicket saved = save(0, 20);
  EXPECT_FALSE(saved->wait_done(clock_.now())) << "nothing happens before a turn";
  run_to_rest();
  EXPECT_TRUE(saved->wait_done(clock_.now()));
  const Nanos begun = clock_.now();
  const Ticket ticket = load(0, 20);
  EXPECT_FALSE(ticket->done());
  run_to_rest();
  ASSERT_TRUE(ticket->done());
  EXPECT_TRUE(ticket->drained());
  EXPECT_EQ(ticket->result().requests.at(0).usable_blocks, 20U);
  EXPECT_EQ(ticket->result().submitted_at, begun);
  EXPECT_GT(ticket->result().ended_at, begun + 20 * kSecond / 500);
  expect_closed(engine_->stats());
}

/// The same calls, one with threads and bytes.
TEST_F(DrivenEngineTest, CountsWhatAThreadedEngineCounts) {
  open();
  save(0, 20);
  run_to_rest();
  const auto lookups = [&](Engine& engine, std::vector<LeaseToken>& leases) {
    for (const auto& [first, count] : {std::pair{0, 8}, {18, 6}, {100, 3}, {2, 4}}) {
      std::vector<BlockKey> keys;
      for (int i = 0; i < count; ++i)
        keys.push_back(test_key(static_cast<std::uint64_t>(first + i)));
      const LookupRequest asked{keys};
      leases.push_back(engine.lookup({&asked, 1}).front().lease);
    }
    engine.release(leases[3]);
  };
  std::vector<LeaseToken> leases;
  lookups(*engine_, leases);
  const Ticket first = load(0, 6, leases[0]);
  const Ticket second = load(18, 6, leases[1]);
  run_to_rest();
  const EngineStats driven = engine_->stats();
  EXPECT_TRUE(first->done() && second->done());

  class Threaded : public EngineFixture {
   public:
    void TestBody() override {}
    EngineStats run(const std::function<void(Engine&, std::vector<LeaseToken>&)>& lookups) {
      TierPlan nvme, pfs;
      nvme.name = "nvme";
      pfs.name = "pfs";
      open({nvme, pfs});
      save(0, 20);
      std::vector<LeaseToken> leases;
      lookups(*engine_, leases);
      Load first, second;
      start(first, {{0, 1, 2, 3, 4, 5}}, {leases[0]});
      start(second, {{18, 19, 20, 21, 22, 23}}, {leases[1]});
      settle(first);
      settle(second);
      expect_accounts_closed();
      return engine_->stats();
    }
  } threaded;
  const EngineStats real = threaded.run(lookups);
  EXPECT_EQ(driven.looked_up, real.looked_up);
  EXPECT_EQ(driven.never_loaded, real.never_loaded);
  EXPECT_EQ(driven.requested, real.requested);
  EXPECT_EQ(driven.hits, real.hits);
  EXPECT_EQ(driven.misses, real.misses);
  EXPECT_EQ(driven.offered, real.offered);
  EXPECT_EQ(driven.published, real.published);
  EXPECT_EQ(driven.catalog_blocks, real.catalog_blocks);
  EXPECT_EQ(driven.catalog_replicas, real.catalog_replicas);
  EXPECT_GT(driven.misses, 0U);
  expect_closed(driven);
}

TEST_F(DrivenEngineTest, TheSameCallsGiveTheSameTimesAndRecords) {
  const auto play = [&] {
    Settings settings;
    settings.record_steps = true;
    open({1, 1e9, 0}, settings);
    save(0, 40);
    run_to_rest();
    for (int i = 0; i < 5; ++i) {
      load(static_cast<std::uint64_t>(i), 30);
      save(static_cast<std::uint64_t>(100 + 10 * i), 10);
      run_to_rest();
    }
    std::vector<Nanos> times{clock_.now()};
    for (const StepRecord& record : engine_->take_step_records()) {
      times.push_back(record.ended_at);
      for (const auto& read : record.reads) {
        times.push_back(read.submitted_at);
        times.push_back(read.ended_at);
        times.push_back(read.source);
      }
    }
    return times;
  };
  const auto first = play();
  EXPECT_GT(first.size(), 300U);
  EXPECT_EQ(first, play());
}

TEST_F(DrivenEngineTest, MoreThanTheTiersHoldIsEvictedAndTheSlotsAreUsedAgain) {
  open();
  for (std::uint64_t i = 0; i < 20; ++i) {
    save(100 * i, 16);
    run_to_rest();
  }
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.published, 320U);
  EXPECT_LE(stats.catalog_blocks, 128U);
  std::uint64_t evicted = 0;
  for (const auto& tier : stats.tiers) evicted += tier.evicted;
  EXPECT_GE(evicted, 320U - 128U);
  expect_closed(stats);
}

TEST_F(DrivenEngineTest, ACancelDoesNotWaitForTimeThatStandsStill) {
  open({1, 1e6, 0});  // a copy takes 65 ms
  save(0, 8);
  run_to_rest();
  const Ticket ticket = load(0, 8);
  // Some turns, until a block is being placed.
  for (int i = 0; i < 20; ++i) clock_.set(std::max(clock_.now(), engine_->turn()));
  ASSERT_FALSE(ticket->done());
  const Status cancelled = engine_->cancel(ticket, clock_.now() + 5 * kSecond);
  EXPECT_TRUE(cancelled.is_ok() == ticket->done());
  run_to_rest();
  EXPECT_TRUE(ticket->done());
  EXPECT_TRUE(ticket->drained());
  const EngineStats stats = engine_->stats();
  EXPECT_GT(stats.cancelled, 0U);
  expect_closed(stats);
}

TEST_F(DrivenEngineTest, CloseWithWorkUnderWayEndsAtOnceAndAnswersFromThenOn) {
  open();
  save(0, 20);
  run_to_rest();
  const LookupAnswer leased = look_up(0, 4);
  EXPECT_EQ(leased.blocks, 4U);
  const Ticket ticket = load(0, 20);
  const SaveTicket saved = save(50, 20);
  engine_->turn();
  ASSERT_FALSE(ticket->done());
  const CloseReport report = engine_->close(clock_.now() + kSecond);
  EXPECT_FALSE(report.abandoned);
  EXPECT_FALSE(ticket->done());
  EXPECT_FALSE(saved->wait_done(0));
  EXPECT_EQ(look_up(0, 4).blocks, 0U);
  const LoadRequest nothing{};
  const auto refused = engine_->load_step({{&nothing, 1}, 0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kClosed);
  EXPECT_EQ(save(60, 1)->counts().offered, 0U);
  EXPECT_EQ(engine_->stats().requested, 20U);
  engine_->release(leased.lease);
  engine_->close(clock_.now());
  engine_.reset();
}

TEST_F(DrivenEngineTest, TurnsAreAsMuchAsThereIsToDo) {
  open();
  save(0, 60);
  const std::uint64_t turns = run_to_rest();
  EXPECT_LE(turns, 60U * 6U + 50U);
  // Nothing to do: it wants to be called again, but not at once.
  engine_->turn();
  EXPECT_GT(engine_->turn(), clock_.now());
}

}  // namespace
}  // namespace kvstream
