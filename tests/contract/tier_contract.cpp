#include "contract/tier_contract.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "core/checksum.hpp"
#include "engine/threaded_tier.hpp"

namespace kvstream::test {

void TierContract::SetUp() {
  std::string pattern = std::filesystem::temp_directory_path() / "kvstream-contract-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr) << pattern;
  directory_ = pattern;
  open();
}

void TierContract::TearDown() {
  driver_.reset();
  tier_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void TierContract::open() {
  TierSpec spec;
  spec.name = "tier0";
  spec.kind = GetParam().name;
  spec.path = directory_;
  spec.cap_bytes = GetParam().cap_bytes;
  TierContext context;
  context.block_bytes_max = GetParam().block_bytes_max;
  context.namespace_fingerprint = 0x5EED;
  context.clock = &SteadyClock::instance();
  auto made = GetParam().make(spec, context);
  ASSERT_TRUE(made) << made.error().to_string();
  if (auto* plain = std::get_if<std::unique_ptr<Tier>>(&*made)) {
    tier_ = std::move(*plain);
  } else {
    tier_ = ThreadedTier::open(std::move(std::get<std::unique_ptr<BlockingTier>>(*made)),
                               *context.clock);
  }
  if (GetParam().wrap) tier_ = GetParam().wrap(std::move(tier_), spec);
  driver_ = std::make_unique<TierDriver>(*tier_);
}

void TierContract::reopen() {
  driver_.reset();
  tier_.reset();
  open();
}

void TierContract::expect_closed_accounts() const {
  const TierReport report = tier().report();
  EXPECT_EQ(report.used_bytes + report.free_bytes, report.capacity_bytes);
  EXPECT_LE(report.capacity_bytes, GetParam().cap_bytes);
}

std::uint64_t TierContract::seed() {
  const char* text = std::getenv("KVSTREAM_TEST_SEED");
  const std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  std::printf("seed %llu (KVSTREAM_TEST_SEED)\n", static_cast<unsigned long long>(seed));
  return seed;
}

bool TierContract::full() {
  const char* text = std::getenv("KVSTREAM_TEST_FULL");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

TEST_P(TierContract, TraitsDescribeTheTier) {
  const TierTraits& traits = tier().traits();
  EXPECT_FALSE(traits.kind.empty());
  EXPECT_EQ(traits.name, "tier0");
  EXPECT_FALSE(traits.device_id.empty());
  EXPECT_GE(traits.in_flight_max, 1U);
  EXPECT_GE(traits.alignment_bytes, 1U);
  EXPECT_EQ(traits.alignment_bytes & (traits.alignment_bytes - 1), 0U);
  EXPECT_FALSE(tier().report().mode.empty());
}

TEST_P(TierContract, WrittenBlocksAreReadBackByteForByte) {
  const std::uint32_t most = block_bytes();
  std::vector<Written> blocks;
  std::uint64_t number = 0;
  for (const std::uint32_t size : {1U, 7U, 511U, 4096U, 4097U, most / 2 + 13, most - 1, most}) {
    blocks.push_back(driver().write(number++, size));
  }
  for (const Written& block : blocks) EXPECT_TRUE(driver().reads_back(block)) << block.size_bytes;
}

TEST_P(TierContract, ABlockLandsInSeveralSpans) {
  const Written block = driver().write(1, block_bytes() - 100);
  for (const std::size_t spans : {2U, 3U, 16U}) EXPECT_TRUE(driver().reads_back(block, spans));
}

TEST_P(TierContract, ReadsWriteNothingBehindTheirSpans) {
  const Written block = driver().write(1, 5000);
  const std::size_t room = padded(tier(), block.size_bytes);
  AlignedBytes bytes(2 * block_bytes());
  const Span span{bytes.data(), room};
  const ReadOp op{driver().next_id(), block.at, block.size_bytes, {&span, 1}};
  ASSERT_EQ(tier().submit_reads({&op, 1}), 1U);
  ASSERT_EQ(driver().collect(1).size(), 1U);
  for (std::size_t at = room; at < bytes.size_bytes(); ++at) {
    ASSERT_EQ(bytes.data()[at], std::byte{0xEE}) << at;
  }
}

TEST_P(TierContract, OperationsBeyondTheMostInFlightAreRefusedNotLost) {
  const Written block = driver().write(1, 4096);
  const std::size_t most = tier().traits().in_flight_max;
  const std::size_t count = most + 8;
  std::vector<AlignedBytes> buffers;
  std::vector<Span> spans(count);
  std::vector<ReadOp> ops(count);
  for (std::size_t i = 0; i < count; ++i) {
    buffers.emplace_back(4096);
    spans[i] = {buffers[i].data(), 4096};
    ops[i] = {driver().next_id(), block.at, 4096, {&spans[i], 1}};
  }
  std::multiset<std::uint64_t> ids;
  std::size_t begun = 0;
  for (int round = 0; begun < count && round < 1000; ++round) {
    const std::size_t taken = tier().submit_reads(std::span(ops).subspan(begun));
    ASSERT_LE(taken, most);
    ASSERT_GE(taken, round == 0 ? 1U : 0U);
    begun += taken;
    if (ids.size() < begun) {
      for (const Completion& done : driver().collect(1)) {
        EXPECT_EQ(done.code, Code::kOk);
        ids.insert(done.id);
      }
    }
  }
  ASSERT_EQ(begun, count);
  for (const Completion& done : driver().collect(count - ids.size())) ids.insert(done.id);
  EXPECT_EQ(ids.size(), count);
  for (const ReadOp& op : ops) EXPECT_EQ(ids.count(op.id), 1U);
  const AlignedBytes want = payload_of(block.key, 4096);
  for (const AlignedBytes& got : buffers) {
    EXPECT_EQ(std::memcmp(got.data(), want.data(), 4096), 0);
  }
}

TEST_P(TierContract, EachOperationCompletesOnceAlsoWithOnePlaceToPoll) {
  std::vector<AlignedBytes> bytes;
  std::vector<WriteOp> ops;
  const std::size_t count = std::min<std::size_t>(12, tier().traits().in_flight_max);
  std::multiset<std::uint64_t> want;
  for (std::size_t i = 0; i < count; ++i) {
    const auto slot = driver().reserve(3000);
    ASSERT_TRUE(slot) << slot.error().to_string();
    bytes.push_back(payload_of(key_of(i), 3000));
    ops.push_back({driver().next_id(), key_of(i), *slot, 3000, checksum(bytes.back().first(3000)),
                   bytes.back().data()});
    want.insert(ops.back().id);
  }
  ASSERT_EQ(tier().submit_writes(ops), count);
  std::multiset<std::uint64_t> got;
  for (const Completion& done : driver().collect(count, 1)) {
    EXPECT_EQ(done.code, Code::kOk);
    got.insert(done.id);
  }
  EXPECT_EQ(got, want);
  EXPECT_TRUE(driver().collect_quiet().empty());
  for (const WriteOp& op : ops) {
    EXPECT_TRUE(driver().reads_back({op.key, op.at, op.size_bytes}));
  }
}

TEST_P(TierContract, EmptyListsAreFine) {
  EXPECT_EQ(tier().submit_reads({}), 0U);
  EXPECT_EQ(tier().submit_writes({}), 0U);
  EXPECT_EQ(tier().poll({}), 0U);
  EXPECT_EQ(tier().changes({}), 0U);
  EXPECT_TRUE(driver().collect_quiet().empty());
}

TEST_P(TierContract, ReservesUntilThereIsNoSpaceAndAgainAfterAFree) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> taken;
  std::vector<SlotRef> slots;
  const std::size_t most = GetParam().cap_bytes / block_bytes() + 1;
  Code last = Code::kOk;
  while (slots.size() < most) {
    const auto slot = driver().reserve(block_bytes());
    if (!slot) {
      last = slot.error().code();
      break;
    }
    EXPECT_TRUE(taken.emplace(slot->segment, slot->slot).second) << "one slot for two";
    slots.push_back(*slot);
  }
  ASSERT_EQ(last, Code::kNoSpace);
  ASSERT_GE(slots.size(), 4U);
  expect_closed_accounts();
  EXPECT_EQ(tier().report().used_bytes, slots.size() * (tier().report().used_bytes / slots.size()));
  for (std::size_t i = 0; i < 3; ++i) tier().free(slots[i]);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto slot = driver().reserve(block_bytes());
    ASSERT_TRUE(slot) << slot.error().to_string();
    slots[i] = *slot;
  }
  EXPECT_FALSE(driver().reserve(block_bytes()));
  const Written block{key_of(7), slots[1], block_bytes()};
  EXPECT_EQ(driver().write_at(block).code, Code::kOk);
  EXPECT_TRUE(driver().reads_back(block));
}

TEST_P(TierContract, ABlockLargerThanTheLargestIsRefused) {
  const auto slot = tier().reserve(block_bytes() * 2 + 4096);
  ASSERT_FALSE(slot);
  EXPECT_EQ(slot.error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(slot.error().message().empty());
}

TEST_P(TierContract, GenerationsGrowWhenASlotIsUsedAgain) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> newest;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Written block = driver().write(i, 100);
    auto& generation = newest[{block.at.segment, block.at.slot}];
    EXPECT_GT(block.at.generation, generation);
    generation = block.at.generation;
    tier().free(block.at);
  }
}

TEST_P(TierContract, AStaleLocationNeverPassesForTheOldBlock) {
  // All slots are used, so that the next write must take the one that was freed.
  std::vector<Written> blocks;
  const std::size_t most = GetParam().cap_bytes / block_bytes() + 1;
  for (std::uint64_t i = 0; i < most; ++i) {
    const auto slot = driver().reserve(2000);
    if (!slot) break;
    blocks.push_back({key_of(i), *slot, 2000});
  }
  ASSERT_FALSE(blocks.empty());
  const Written old = blocks.front();
  ASSERT_EQ(driver().write_at(old).code, Code::kOk);
  tier().free(old.at);
  const Written fresh = driver().write(1'000'000, 2000);
  ASSERT_EQ(fresh.at.slot, old.at.slot);
  const auto read = driver().read(old);
  if (read.done.code == Code::kOk) {
    EXPECT_NE(checksum(read.bytes.first(old.size_bytes)),
              payload_checksum(old.key, old.size_bytes));
  }
  EXPECT_TRUE(driver().reads_back(fresh));
}

TEST_P(TierContract, UsedAndFreeAddUpToTheCapacity) {
  expect_closed_accounts();
  std::vector<Written> blocks;
  for (std::uint64_t i = 0; i < 5; ++i) blocks.push_back(driver().write(i, 1000));
  expect_closed_accounts();
  const std::uint64_t used = tier().report().used_bytes;
  EXPECT_GE(used, 5U * 1000U);
  const auto reserved = driver().reserve(10);
  ASSERT_TRUE(reserved);
  EXPECT_GT(tier().report().used_bytes, used);
  expect_closed_accounts();
  tier().free(*reserved);
  for (const Written& block : blocks) tier().free(block.at);
  expect_closed_accounts();
  EXPECT_EQ(tier().report().used_bytes, 0U);
}

TEST_P(TierContract, BytesInPlaceAreThereExactlyWhenTheTraitsSaySo) {
  const Written block = driver().write(3, 4321);
  const std::byte* bytes = tier().view(block.at);
  ASSERT_EQ(bytes != nullptr, tier().traits().addressable);
  if (bytes != nullptr) {
    EXPECT_EQ(std::memcmp(bytes, payload_of(block.key, 4321).data(), 4321), 0);
  }
  tier().free(block.at);
  EXPECT_EQ(tier().view(block.at), nullptr);
}

TEST_P(TierContract, AfterAReopenWhatWasWrittenIsListedAndNothingThatWasFreed) {
  std::vector<Written> kept, freed;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Written block = driver().write(i, 1000 + static_cast<std::uint32_t>(i));
    if (i % 8 == 0) {
      tier().free(block.at);  // the next one may take its slot
    } else if (i % 8 == 4) {
      freed.push_back(block);
    } else {
      kept.push_back(block);
    }
  }
  for (const Written& block : freed) tier().free(block.at);
  ASSERT_TRUE(tier().chore().is_ok());
  ASSERT_TRUE(driver().reserve(1000)) << "a slot that is reserved only";
  const bool persistent = tier().traits().persistent;
  reopen();
  if (!persistent) {
    EXPECT_TRUE(driver().listed_blocks(0).empty());
    EXPECT_EQ(tier().report().used_bytes, 0U);
    return;
  }
  const auto found = driver().listed_blocks(kept.size());
  EXPECT_EQ(found.size(), kept.size());
  const bool own = GetParam().after_reopen == AfterReopen::kOwn;
  for (const Written& block : kept) {
    const auto at = found.find(block.key);
    ASSERT_NE(at, found.end()) << "a block was forgotten";
    EXPECT_EQ(at->second.own, own);
    EXPECT_EQ(at->second.size_bytes, block.size_bytes);
    EXPECT_EQ(at->second.checksum, payload_checksum(block.key, block.size_bytes));
    EXPECT_TRUE(driver().reads_back({block.key, at->second.at, block.size_bytes}));
    const std::uint64_t used = tier().report().used_bytes;
    if (!own) continue;
    tier().free(at->second.at);
    EXPECT_LT(tier().report().used_bytes, used);
  }
  if (own) {
    EXPECT_EQ(tier().report().used_bytes, 0U);
  }
  expect_closed_accounts();
}

TEST_P(TierContract, ReportsAndChoresMayRunBesideTheOperations) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> broken{0}, rounds{0};
  std::thread reporter([&] {
    while (!stop) {
      const TierReport report = tier().report();
      if (report.used_bytes > report.capacity_bytes || report.mode.empty()) ++broken;
      ++rounds;
    }
  });
  std::thread chores([&] {
    while (!stop) {
      if (!tier().chore().is_ok()) ++broken;
      std::this_thread::yield();
    }
  });
  for (std::uint64_t i = 0; i < 100 || (rounds == 0 && i < 1'000'000); ++i) {
    auto slot = tier().reserve(2048);
    const Nanos deadline = SteadyClock::instance().now() + 20 * kSecond;
    while (!slot && slot.error().code() == Code::kOverloaded &&
           SteadyClock::instance().now() < deadline) {
      std::this_thread::yield();
      slot = tier().reserve(2048);
    }
    if (!slot) {
      ADD_FAILURE() << slot.error().to_string();
      break;
    }
    const Written block{key_of(i), *slot, 2048};
    EXPECT_EQ(driver().write_at(block).code, Code::kOk);
    EXPECT_TRUE(driver().reads_back(block));
    tier().free(block.at);
  }
  stop = true;
  reporter.join();
  chores.join();
  EXPECT_EQ(broken, 0U);
}

}  // namespace kvstream::test
