#include <poll.h>
#include <sys/eventfd.h>

#include <thread>

#include "engine_fixture.hpp"

namespace kvstream {
namespace {

Mode replicate(Replication replication) {
  Mode mode;
  mode.replication = replication;
  return mode;
}

class EngineTest : public EngineFixture {};

TEST_F(EngineTest, WhatWasSavedIsLoadedByteForByte) {
  open({{"a", {}}, {"b", {}}}, replicate(Replication::kAll));
  const auto saved = save(1, 8);
  EXPECT_EQ(saved.offered, 8U);
  EXPECT_EQ(saved.published, 8U);
  Load load;
  start(load, {{1, 2, 3, 4}, {5, 6, 7, 8}});
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 4U);
  EXPECT_EQ(load.ticket->result().requests[1].usable_blocks, 4U);
  check_bytes(load);
  settle(load);
  expect_accounts_closed();
}

TEST_F(EngineTest, OddSizesAreKeptExactly) {
  open({{"a", {}}});
  save(1, 2, 0, 12'345);
  Load load;
  start(load, {{1, 2}}, {}, 0, 12'345);
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 2U);
  check_bytes(load);
}

TEST_F(EngineTest, ABlockMayBeScatteredOverManySpans) {
  open({{"a", {}}});
  save(1, 1);
  std::vector<std::byte> into(kTestBlock);
  std::vector<Span> spans;
  for (std::size_t at = 0; at < kTestBlock; at += 1024) spans.push_back({into.data() + at, 1024});
  const BlockRequest block{test_key(1), kTestBlock, spans};
  const LoadRequest request{{&block, 1}, {}};
  const auto ticket = engine_->load_step({{&request, 1}, 0});
  ASSERT_TRUE(ticket);
  ASSERT_TRUE((*ticket)->wait_until(soon()));
  EXPECT_EQ(into, test_bytes(1));
}

TEST_F(EngineTest, SpansThatDoNotAddUpAreRefusedWithTheReason) {
  open({{"a", {}}});
  save(1, 1);
  std::vector<std::byte> into(100);
  const Span span{into.data(), into.size()};
  const BlockRequest block{test_key(1), kTestBlock, {&span, 1}};
  const LoadRequest request{{&block, 1}, {}};
  const auto ticket = engine_->load_step({{&request, 1}, 0});
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(engine_->stats().holds, 0U);
}

TEST_F(EngineTest, BlocksBehindAHoleAreMisses) {
  open({{"a", {}}});
  save(1, 2);
  save(4, 2);
  Load load;
  start(load, {{1, 2, 3, 4, 5}});
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  const auto& request = load.ticket->result().requests[0];
  EXPECT_EQ(request.usable_blocks, 2U);
  EXPECT_EQ(request.blocks[2].reason, MissReason::kNotFound);
  EXPECT_EQ(request.blocks[3].reason, MissReason::kBehindAHole);
  check_bytes(load);
  settle(load);
  expect_accounts_closed();
}

TEST_F(EngineTest, LookupLeasesTheLongestPrefix) {
  open({{"a", {}}});
  save(1, 3);
  const std::vector<BlockKey> keys{test_key(1), test_key(2), test_key(3), test_key(4)};
  const LookupRequest question{keys};
  const auto answer = engine_->lookup({&question, 1}).front();
  EXPECT_EQ(answer.blocks, 3U);
  EXPECT_FALSE(answer.pending);
  Load load;
  start(load, {{1, 2, 3}}, {answer.lease});
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 3U);
  settle(load);
  expect_accounts_closed();
}

TEST_F(EngineTest, ALeaseThatIsNeverLoadedEndsAndIsCounted) {
  Settings settings;
  settings.lease_ns = 20 * kMillisecond;
  open({{"a", {}}}, {}, settings);
  save(1, 3);
  const std::vector<BlockKey> keys{test_key(1), test_key(2), test_key(3)};
  const LookupRequest question{keys};
  for (int i = 0; i < 100; ++i) EXPECT_EQ(engine_->lookup({&question, 1}).front().blocks, 3U);
  const Nanos deadline = soon();
  while (engine_->stats().leases > 0 && clock_.now() < deadline) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().never_loaded, 300U);
  expect_accounts_closed();
}

TEST_F(EngineTest, ReleaseEndsALeaseOnce) {
  open({{"a", {}}});
  save(1, 2);
  const std::vector<BlockKey> keys{test_key(1), test_key(2)};
  const LookupRequest question{keys};
  const auto lease = engine_->lookup({&question, 1}).front().lease;
  engine_->release(lease);
  engine_->release(lease);
  engine_->release(LeaseToken{{1, 2}});
  EXPECT_EQ(engine_->stats().never_loaded, 2U);
  expect_accounts_closed();
}

TEST_F(EngineTest, ALeasedBlockOutlivesThePressureOfNewOnes) {
  open({{"a", {}, 8ULL * kTestBlock}});
  save(1, 4);
  const std::vector<BlockKey> keys{test_key(1), test_key(2), test_key(3), test_key(4)};
  const LookupRequest question{keys};
  const auto lease = engine_->lookup({&question, 1}).front().lease;
  for (std::uint64_t i = 0; i < 10; ++i) save(100 + 4 * i, 4);
  Load load;
  start(load, {{1, 2, 3, 4}}, {lease});
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 4U);
  check_bytes(load);
  settle(load);
  expect_accounts_closed();
  EXPECT_GT(engine_->stats().tiers[0].evicted, 0U);
}

TEST_F(EngineTest, AFlippedByteIsServedFromAnotherTier) {
  FaultPlan flips;
  flips.reads.flip = 1.0;
  open({{"bad", flips}, {"good", {}}}, replicate(Replication::kAll));
  save(1, 16);
  Load load;
  start(load, {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}});
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 16U);
  for (const auto& block : load.ticket->result().requests[0].blocks) EXPECT_EQ(block.source, 1);
  check_bytes(load);
  settle(load);
  expect_accounts_closed();
}

TEST_F(EngineTest, ABadCopyIsNeverServedAndLeavesTheCatalog) {
  FaultPlan flips;
  flips.reads.flip = 1.0;
  Settings settings;
  settings.landing = Landing::kStaged;  // direct, bad bytes may lie in the destination of a miss
  open({{"bad", flips}}, {}, settings);
  save(1, 4);
  Load load;
  start(load, {{1, 2, 3, 4}});
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 0U);
  EXPECT_EQ(load.ticket->result().requests[0].blocks[0].reason, MissReason::kAllFailed);
  check_bytes(load);
  settle(load);
  expect_accounts_closed();
  const std::vector<BlockKey> keys{test_key(1)};
  const LookupRequest question{keys};
  EXPECT_EQ(engine_->lookup({&question, 1}).front().blocks, 0U);
}

TEST_F(EngineTest, ReadErrorsCostOtherTiersNotAnswers) {
  FaultPlan errors;
  errors.reads.error = 0.5;
  errors.reads.short_transfer = 0.3;
  open({{"bad", errors}, {"good", {}}}, replicate(Replication::kAll));
  save(1, 24);
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 1; i <= 24; ++i) all.push_back(i);
  for (int round = 0; round < 5; ++round) {
    Load load;
    start(load, {all});
    ASSERT_TRUE(load.ticket->wait_until(soon()));
    EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 24U);
    check_bytes(load);
    settle(load);
  }
  expect_accounts_closed();
}

TEST_F(EngineTest, AStalledTierEndsInAShorterPrefixAtTheDeadline) {
  FaultPlan stall;
  stall.reads.stall = 1.0;
  stall.stall_ns = 300 * kMillisecond;
  open({{"stalled", stall}});
  save(1, 2);
  Load load;
  const Nanos began = clock_.now();
  start(load, {{1, 2}}, {}, began + 50 * kMillisecond);
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_GE(clock_.now() - began, 50 * kMillisecond);
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 0U);
  settle(load);
  check_bytes(load);
  expect_accounts_closed();
}

TEST_F(EngineTest, AStalledTierDoesNotHoldUpAStepThatAnotherCanServe) {
  FaultPlan stall;
  stall.reads.stall = 1.0;
  stall.stall_ns = 2 * kSecond;
  open({{"stalled", stall}, {"good", {}}}, replicate(Replication::kAll));
  save(1, 16);
  Load load;
  const Nanos began = clock_.now();
  start(load, {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}});
  ASSERT_TRUE(load.ticket->wait_until(soon()));
  EXPECT_LT(clock_.now() - began, 1500 * kMillisecond);
  EXPECT_EQ(load.ticket->result().requests[0].usable_blocks, 16U);
  check_bytes(load);
  settle(load);
  check_bytes(load);  // what came late has not met the destinations
}

TEST_F(EngineTest, AfterCancelNothingIsWrittenIntoTheDestinations) {
  FaultPlan slow;
  slow.reads.delay = 1.0;
  slow.delay_ns = 100 * kMillisecond;
  open({{"slow", slow}});
  save(1, 4);
  Load load;
  start(load, {{1, 2, 3, 4}});
  wait_until_reading();
  ASSERT_TRUE(engine_->cancel(load.ticket, soon()).is_ok());
  EXPECT_TRUE(load.ticket->done());
  const auto held = engine_->held(load.ticket);
  if (held.empty()) check_bytes(load);
  settle(load);
  if (held.empty()) check_bytes(load);
  EXPECT_TRUE(engine_->held(load.ticket).empty());
  expect_accounts_closed();
  EXPECT_EQ(engine_->stats().cancelled, 4U);
}

TEST_F(EngineTest, TheEventFdRingsWhenAStepEndsThoughItIsNotDrained) {
  FaultPlan stall;
  stall.reads.stall = 1.0;
  stall.stall_ns = kNever;
  open({{"stuck", stall}});
  save(1, 1);
  pollfd readable{engine_->event_fd(), POLLIN, 0};
  eventfd_t rings = 0;
  ASSERT_EQ(::poll(&readable, 1, 10'000), 1) << "a save was staged and published without a ring";
  ASSERT_EQ(::eventfd_read(readable.fd, &rings), 0);
  Load load;
  start(load, {{1}}, {}, soon(20 * kMillisecond));
  ASSERT_EQ(::poll(&readable, 1, 10'000), 1);
  EXPECT_TRUE(load.ticket->done());
  EXPECT_FALSE(load.ticket->drained());
  EXPECT_EQ(load.ticket->result().requests[0].blocks[0].state, BlockState::kLate);
  EXPECT_TRUE(engine_->close(soon(50 * kMillisecond)).abandoned);
}

TEST_F(EngineTest, TheEventFdRingsWhenAStepIsDrained) {
  FaultPlan stall;
  stall.reads.stall = 1.0;
  stall.stall_ns = 300 * kMillisecond;
  open({{"stalled", stall}});
  save(1, 1);
  Load load;
  start(load, {{1}}, {}, soon(20 * kMillisecond));
  pollfd readable{engine_->event_fd(), POLLIN, 0};
  while (!load.ticket->drained()) {
    ASSERT_EQ(::poll(&readable, 1, 10'000), 1) << "the step was drained without a ring";
    eventfd_t rings = 0;
    ASSERT_EQ(::eventfd_read(readable.fd, &rings), 0);
  }
  EXPECT_TRUE(load.ticket->done());
}

TEST_F(EngineTest, MoreThanTheQueueHoldsIsDroppedAndCounted) {
  Settings settings;
  settings.pool_bytes = 12ULL * kTestBlock;
  settings.write_queue_bytes_max = 4ULL * kTestBlock;
  FaultPlan slow;
  slow.writes.delay = 1.0;
  slow.delay_ns = 50 * kMillisecond;
  open({{"slow", slow}}, {}, settings);
  const auto saved = save(1, 32);
  EXPECT_EQ(saved.offered, 32U);
  EXPECT_EQ(saved.published + saved.dropped, 32U);
  EXPECT_GE(saved.dropped, 20U);
  EXPECT_GE(saved.published, 4U);
  expect_accounts_closed();
}

TEST_F(EngineTest, ASaveSaysOfEachBlockWhetherItIsPublished) {
  FaultPlan errors;
  errors.writes.error = 0.5;
  errors.seed = 11;
  open({{"half", errors}});
  std::vector<std::vector<std::byte>> bytes;
  std::vector<ConstSpan> spans;
  std::vector<SaveBlock> blocks;
  for (std::uint64_t i = 0; i < 16; ++i) bytes.push_back(test_bytes(i));
  for (const auto& b : bytes) spans.push_back({b.data(), b.size()});
  for (std::uint32_t i = 0; i < 16; ++i) {
    blocks.push_back({test_key(i), kTestBlock, {&spans[i], 1}, i});
  }
  const auto ticket = engine_->save_step({blocks});
  ASSERT_TRUE(ticket->wait_done(soon()));
  std::uint64_t published = 0;
  for (std::uint64_t i = 0; i < 16; ++i) {
    const BlockKey key = test_key(i);
    const LookupRequest question{{&key, 1}};
    const auto answer = engine_->lookup({&question, 1}).front();
    engine_->release(answer.lease);
    EXPECT_EQ(answer.blocks == 1, ticket->published(i)) << "block " << i;
    published += ticket->published(i) ? 1 : 0;
  }
  EXPECT_EQ(published, ticket->counts().published);
  EXPECT_GT(published, 0U);
  EXPECT_LT(published, 16U);
  EXPECT_FALSE(ticket->published(16));
}

TEST_F(EngineTest, AFailedWriteIsNotFound) {
  FaultPlan errors;
  errors.writes.error = 1.0;
  open({{"bad", errors}});
  EXPECT_EQ(save(1, 3).dropped, 3U);
  const std::vector<BlockKey> keys{test_key(1)};
  const LookupRequest question{keys};
  EXPECT_EQ(engine_->lookup({&question, 1}).front().blocks, 0U);
  expect_accounts_closed();
}

TEST_F(EngineTest, OneSpreadsBlocksOverTiersAndAllCopiesThem) {
  open({{"memory", {}, 64ULL * kTestBlock, true}, {"a", {}}, {"b", {}}});
  save(1, 16);
  std::uint64_t on_drives = 0;
  for (const auto& entry : engine_->contents()) {
    EXPECT_NE(entry.own & 0b001U, 0U);
    EXPECT_TRUE((entry.own & 0b110U) == 0b010U || (entry.own & 0b110U) == 0b100U);
    ++on_drives;
  }
  EXPECT_EQ(on_drives, 16U);
  ASSERT_TRUE(engine_->set_mode(replicate(Replication::kAll)).is_ok());
  save(101, 1);
  for (const auto& entry : engine_->contents()) {
    if (entry.key == test_key(101)) {
      EXPECT_EQ(entry.own, 0b111U);
    }
  }
}

TEST_F(EngineTest, UseTiersHidesTheOthers) {
  open({{"a", {}}, {"b", {}}}, replicate(Replication::kAll));
  save(1, 4, 0b01);
  Mode only_b = replicate(Replication::kAll);
  only_b.use_tiers = {"b"};
  ASSERT_TRUE(engine_->set_mode(only_b).is_ok());
  const std::vector<BlockKey> keys{test_key(1)};
  const LookupRequest question{keys};
  EXPECT_EQ(engine_->lookup({&question, 1}).front().blocks, 0U);
  only_b.use_tiers = {"c"};
  const Status status = engine_->set_mode(only_b);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("a, b"), std::string::npos) << status.message();
}

TEST_F(EngineTest, NoCacheLooksNothingUpAndSavesNothing) {
  Mode mode;
  mode.no_cache = true;
  open({{"a", {}}}, mode);
  const auto saved = save(1, 4);
  EXPECT_EQ(saved.offered, 0U);
  const std::vector<BlockKey> keys{test_key(1)};
  const LookupRequest question{keys};
  EXPECT_EQ(engine_->lookup({&question, 1}).front().blocks, 0U);
  expect_accounts_closed();
}

TEST_F(EngineTest, DroppedKeysAreGoneAndTheirSlotsFree) {
  open({{"a", {}}, {"b", {}}}, replicate(Replication::kAll));
  save(1, 4);
  const std::vector<BlockKey> keys{test_key(1), test_key(2)};
  engine_->drop(keys, 0b01);
  std::uint64_t both = 0, only_b = 0;
  for (const auto& entry : engine_->contents()) (entry.own == 0b11U ? both : only_b) += 1;
  EXPECT_EQ(both, 2U);
  EXPECT_EQ(only_b, 2U);
  EXPECT_EQ(engine_->stats().tiers[0].report.used_bytes, 2ULL * kTestBlock);
}

TEST_F(EngineTest, EveryPolicyServesTheSameBytes) {
  open({{"a", {}}, {"b", {}}}, replicate(Replication::kAll));
  save(1, 32);
  std::vector<std::vector<std::uint64_t>> requests(4);
  for (std::uint64_t i = 0; i < 32; ++i) requests[i / 8].push_back(i + 1);
  for (const auto policy : {ReadPolicy::kSerial, ReadPolicy::kPooled, ReadPolicy::kStatic,
                            ReadPolicy::kShortestQueue, ReadPolicy::kCompletion}) {
    for (const auto depth : {SerialDepth::kBlock, SerialDepth::kRequest}) {
      Mode mode = replicate(Replication::kAll);
      mode.policy = policy;
      mode.serial_depth = depth;
      ASSERT_TRUE(engine_->set_mode(mode).is_ok());
      Load load;
      start(load, requests);
      ASSERT_TRUE(load.ticket->wait_until(soon())) << static_cast<int>(policy);
      for (const auto& request : load.ticket->result().requests) {
        EXPECT_EQ(request.usable_blocks, 8U);
      }
      check_bytes(load);
      settle(load);
    }
  }
  expect_accounts_closed();
}

TEST_F(EngineTest, AfterCloseEveryCallAnswersClosed) {
  open({{"a", {}}});
  save(1, 2);
  EXPECT_FALSE(engine_->close(soon()).abandoned);
  EXPECT_FALSE(engine_->close(soon()).abandoned);
  const std::vector<BlockKey> keys{test_key(1)};
  const LookupRequest question{keys};
  EXPECT_EQ(engine_->lookup({&question, 1}).front().blocks, 0U);
  const auto ticket = engine_->load_step({});
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code(), Code::kClosed);
  EXPECT_EQ(engine_->stats().published, 2U);
}

TEST_F(EngineTest, CloseEndsInTimeWhenATierNeverAnswers) {
  FaultPlan stall;
  stall.reads.stall = 1.0;
  stall.stall_ns = kNever;
  Settings settings;
  settings.landing = Landing::kStaged;
  open({{"stuck", stall}}, {}, settings);
  save(1, 2);
  Load load;
  start(load, {{1, 2}});
  wait_until_reading();
  const Nanos began = clock_.now();
  const auto report = engine_->close(began + 100 * kMillisecond);
  EXPECT_LT(clock_.now() - began, 5 * kSecond);
  EXPECT_TRUE(report.abandoned);
  EXPECT_GT(report.slabs_abandoned, 0U);
  EXPECT_TRUE(load.ticket->done());
}

TEST_F(EngineTest, AfterAnAbandonedCloseDirectDestinationsAreStillNamed) {
  FaultPlan stall;
  stall.reads.stall = 1.0;
  stall.stall_ns = kNever;
  open({{"stuck", stall}});
  save(1, 1);
  Load load;
  start(load, {{1}});
  wait_until_reading();
  EXPECT_TRUE(engine_->close(soon(50 * kMillisecond)).abandoned);
  EXPECT_FALSE(load.ticket->drained());
  const auto held = engine_->held(load.ticket);
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0].data, load.into[0][0].data());
}

TEST_F(EngineTest, OpenRefusesWithTheCure) {
  TierContext context;
  context.clock = &clock_;
  auto none = Engine::open({{}, {}, context}, {});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("--tier"), std::string::npos);
  Settings tiny;
  tiny.pool_bytes = 2ULL * kTestBlock;
  tiny.write_queue_bytes_max = kTestBlock;
  tiny.block_bytes_max = kTestBlock;
  std::vector<TierPart> parts;
  parts.push_back(part_of({"a", {}}));
  auto small = Engine::open({tiny, {}, context}, std::move(parts));
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message().find("raise pool"), std::string::npos);
}

TEST_F(EngineTest, ManyCallersAtOnceGetTheirOwnBytes) {
  open({{"memory", {}, 32ULL * kTestBlock, true}, {"a", {}}, {"b", {}}},
       replicate(Replication::kAll));
  ASSERT_EQ(save(1, 24).published + save(25, 24).published, 48U);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0}, hits{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 0; round < 50; ++round) {
        const auto number = 1 + (t * 13 + round * 7) % 48;
        std::vector<std::byte> into(kTestBlock);
        const Span span{into.data(), into.size()};
        const BlockRequest block{test_key(number), kTestBlock, {&span, 1}};
        const LoadRequest request{{&block, 1}, {}};
        const auto ticket = engine_->load_step({{&request, 1}, 0});
        if (!ticket || !(*ticket)->wait_until(soon())) continue;
        if ((*ticket)->result().requests[0].usable_blocks == 1) {
          ++hits;
          wrong += into != test_bytes(number);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(hits.load(), 200);
  expect_accounts_closed();
}

TEST_F(EngineTest, TouchedBlocksAreTheLastToBeEvicted) {
  open({{.name = "nvme", .cap_bytes = 16ULL * kTestBlock}});
  ASSERT_EQ(save(0, 16).published, 16U);
  std::vector<BlockKey> oldest;
  for (std::uint64_t i = 0; i < 4; ++i) oldest.push_back(test_key(i));
  engine_->touch(oldest);
  ASSERT_EQ(save(16, 4).published, 4U);  // a full tier lets four go
  const LookupRequest asked{oldest};
  const auto answer = engine_->lookup({&asked, 1}).front();
  EXPECT_EQ(answer.blocks, 4U);
  engine_->release(answer.lease);
}

}  // namespace
}  // namespace kvstream
