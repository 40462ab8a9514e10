#include "tiers/slot_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "tiers/index_log.hpp"
#include "tiers/slot_store_fixture.hpp"

namespace kvstream::test {
namespace {

using SlotStoreTest = SlotStoreFixture;

std::uint64_t test_seed() {
  const char* text = std::getenv("KVSTREAM_TEST_SEED");
  const std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  std::printf("seed %llu (KVSTREAM_TEST_SEED)\n", static_cast<unsigned long long>(seed));
  return seed;
}

TEST_F(SlotStoreTest, ReserveSaysOverloadedUntilAChoreHasMadeASegment) {
  auto store = open();
  const auto early = store->reserve(kBlock);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code(), Code::kOverloaded);
  ASSERT_TRUE(store->chore().is_ok());
  EXPECT_TRUE(store->reserve(kBlock));
  EXPECT_EQ(store->reserve(kBlock + 4096).error().code(), Code::kInvalidArgument);
}

TEST_F(SlotStoreTest, AReaderAloneMakesNoSegment) {
  auto store = open();
  for (int i = 0; i < 5; ++i) tick(*store);
  EXPECT_EQ(bytes_on_disk(), 0U);
}

TEST_F(SlotStoreTest, ReserveSaysNoSpaceAtTheCapAndWorksAgainAfterAFree) {
  auto store = open();
  std::set<std::pair<std::uint32_t, std::uint32_t>> taken;
  std::vector<SlotRef> slots;
  for (;;) {
    const auto slot = reserve(*store);
    if (!slot) {
      EXPECT_EQ(slot.error().code(), Code::kNoSpace);
      break;
    }
    EXPECT_TRUE(taken.emplace(slot->segment, slot->slot).second);
    slots.push_back(*slot);
    ASSERT_LE(slots.size(), kCap / kBlock);
  }
  EXPECT_GT(slots.size() * kBlock, kCap * 9 / 10) << "the cap should be nearly used";
  EXPECT_LE(bytes_on_disk(), kCap);
  EXPECT_EQ(store->report().free_bytes, 0U);
  store->free(slots[5]);
  const auto again = reserve(*store);
  ASSERT_TRUE(again);
  EXPECT_GT(again->generation, slots[5].generation);
  EXPECT_FALSE(store->resolve(slots[5])) << "a stale location must not resolve";
}

TEST_F(SlotStoreTest, BlocksSurviveACrashAndAreOwnAgain) {
  auto store = open();
  std::map<std::uint64_t, SlotRef> written;
  for (std::uint64_t i = 0; i < 200; ++i) written[i] = write(*store, i);
  for (std::uint64_t i = 0; i < 200; i += 3) {
    store->free(written[i]);
    written.erase(i);
  }
  ASSERT_TRUE(store->chore().is_ok());
  const auto uncommitted = reserve(*store);
  ASSERT_TRUE(uncommitted);
  const auto address = store->prepare_write(*uncommitted);
  write_bytes(*address, 777);

  SlotStoreOptions after = options();
  after.root = crash_copy();
  auto again = open(after);
  std::map<std::uint64_t, CatalogChange> found;
  for (const auto& change : news(*again)) {
    EXPECT_EQ(change.kind, Kind::kAdded);
    EXPECT_TRUE(change.own);
    found[change.key.low64()] = change;
  }
  ASSERT_EQ(found.size(), written.size());
  for (const auto& [number, at] : written) {
    ASSERT_TRUE(found.contains(number));
    EXPECT_EQ(found[number].checksum, checksum(payload(number)));
    EXPECT_TRUE(holds(*again, found[number].at, number)) << number;
  }
  EXPECT_EQ(again->report().used_bytes, written.size() * kBlock);
}

TEST_F(SlotStoreTest, RecoveredBlocksComeOldestFirst) {
  {
    auto store = open();
    for (std::uint64_t i = 0; i < 150; ++i) write(*store, i);
  }
  auto again = open();
  std::uint64_t expected = 0;
  for (const auto& change : news(*again)) EXPECT_EQ(change.key.low64(), expected++);
  EXPECT_EQ(expected, 150U);
}

TEST_F(SlotStoreTest, WithoutATombstoneYetACrashBringsTheBlockBackWithItsRightBytes) {
  auto store = open();
  const SlotRef at = write(*store, 1);
  store->free(at);
  SlotStoreOptions after = options();
  after.root = crash_copy();
  auto again = open(after);
  const auto found = news(*again);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(holds(*again, found[0].at, 1));
}

TEST_F(SlotStoreTest, TheTombstoneIsWrittenBeforeTheSlotIsUsedAgain) {
  auto store = open();
  std::vector<SlotRef> all;
  for (std::uint64_t i = 0;; ++i) {
    const auto at = reserve(*store);
    if (!at) break;
    all.push_back(write_at(*store, i, *at));
  }
  store->free(all[0]);
  const auto again = reserve(*store);
  ASSERT_TRUE(again);
  ASSERT_EQ(again->slot, all[0].slot);
  const auto address = store->prepare_write(*again);
  ASSERT_TRUE(address);
  write_bytes(*address, 4711);
  // A crash here: the bytes are over the old block's, the new record is not written.
  SlotStoreOptions after = options();
  after.root = crash_copy();
  auto recovered = open(after);
  const auto found = news(*recovered);
  EXPECT_EQ(found.size(), all.size() - 1);
  for (const auto& change : found) EXPECT_NE(change.key, numbered_key(0));
}

TEST_F(SlotStoreTest, GenerationsGrowOverFreesRewritingsAndRestarts) {
  std::uint64_t newest = 0;
  for (int run = 0; run < 4; ++run) {
    auto store = open();
    for (const auto& change : news(*store)) store->free(change.at);
    for (std::uint64_t i = 0; i < 300; ++i) {
      const SlotRef at = write(*store, i);
      EXPECT_GT(at.generation, newest);
      newest = at.generation;
      store->free(at);
    }
  }
}

TEST_F(SlotStoreTest, ALogAtItsBoundIsRewrittenAndNothingIsLost) {
  auto store = open();
  const SlotRef kept = write(*store, 1);
  const std::uint64_t before = bytes_on_disk();
  std::uint64_t last = 0;
  for (std::uint64_t i = 2; i < 3000; ++i) {
    const SlotRef at = write(*store, i);
    if (i + 1 < 3000) store->free(at);
    last = i;
    if (i % 500 == 0) {
      EXPECT_TRUE(store->chore().is_ok());
    }
  }
  LogCursor cursor;
  const auto log = read_log(root_ + "/r0/s0.log", cursor, UINT64_MAX);
  ASSERT_TRUE(log);
  EXPECT_GT(log->header.epoch, 5U);
  EXPECT_LE(bytes_on_disk(), std::max(before, kCap));
  EXPECT_TRUE(holds(*store, kept, 1));
  store.reset();
  auto again = open();
  std::set<std::uint64_t> found;
  for (const auto& change : news(*again)) found.insert(change.key.low64());
  EXPECT_EQ(found, (std::set<std::uint64_t>{1, last}));
}

TEST_F(SlotStoreTest, ALogThatIsCutAtAnyRecordGivesBackAllBeforeTheCut) {
  {
    auto store = open();
    for (std::uint64_t i = 0; i < 40; ++i) write(*store, i);
  }
  for (std::uint64_t kept = 0; kept <= 40; kept += 1) {
    SlotStoreOptions after = options();
    after.root = crash_copy();
    std::filesystem::resize_file(after.root + "/r0/s0.log", (kept + 1) * kLogRecordBytes);
    auto store = open(after);
    const auto found = news(*store);
    ASSERT_EQ(found.size(), kept);
    for (const auto& change : found) {
      EXPECT_TRUE(holds(*store, change.at, change.key.low64()));
    }
    // And the log goes on behind the cut.
    write(*store, 1000);
    store.reset();
    EXPECT_EQ(news(*open(after)).size(), kept + 1);
    std::filesystem::remove_all(after.root);
  }
}

TEST_F(SlotStoreTest, FlippedBitsInALogNeverBringWrongBlocks) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  std::vector<SlotRef> refs;
  {
    auto store = open();
    for (std::uint64_t i = 0; i < 40; ++i) refs.push_back(write(*store, i));
    for (std::uint64_t i = 0; i < 10; ++i) store->free(refs[i]);
  }
  const int rounds = std::getenv("KVSTREAM_TEST_FULL") != nullptr ? 500 : 40;
  for (int round = 0; round < rounds; ++round) {
    SlotStoreOptions after = options();
    after.root = crash_copy();
    const std::string log = after.root + "/r0/s0.log";
    std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
    for (int flips = 0; flips < 3; ++flips) {
      const auto at = static_cast<std::streamoff>(64 + random() % (50 * 64));
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ (1 << (random() % 8))));
    }
    file.close();
    auto store = open(after);
    std::size_t good = 0;
    for (const auto& change : news(*store)) {
      ASSERT_LT(change.key.low64(), 40U) << "round " << round;
      EXPECT_EQ(change.checksum, checksum(payload(change.key.low64())));
      EXPECT_TRUE(holds(*store, change.at, change.key.low64()));
      ++good;
    }
    EXPECT_GE(good, 27U);
    const SlotRef at = write(*store, 99);
    for (const SlotRef& ref : refs) EXPECT_GT(at.generation, ref.generation);
    std::filesystem::remove_all(after.root);
  }
}

TEST_F(SlotStoreTest, LeftoversOfACrashWhileASegmentWasMadeAreRemoved) {
  { write(*open(), 1); }
  std::ofstream(root_ + "/r0/s7.seg") << "half a segment";
  std::ofstream(root_ + "/r0/s8.log") << "a log without its data";
  std::ofstream(root_ + "/r0/s0.log.new") << "half a log";
  auto store = open();
  EXPECT_FALSE(std::filesystem::exists(root_ + "/r0/s7.seg"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/r0/s8.log"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/r0/s0.log.new"));
  EXPECT_EQ(news(*store).size(), 1U);
}

TEST_F(SlotStoreTest, ABrokenHeaderCostsOneSegmentWhoseSpaceComesBack) {
  {
    auto store = open();
    for (std::uint64_t i = 0; i < 400; ++i) {
      if (const auto at = reserve(*store)) write_at(*store, i, *at);
    }
  }
  std::filesystem::resize_file(root_ + "/r0/s1.log", 10);
  auto store = open();
  const std::size_t recovered = news(*store).size();
  EXPECT_GT(recovered, 250U);
  std::size_t more = 0;
  for (;; ++more) {
    const auto slot = reserve(*store);
    if (!slot) break;
  }
  EXPECT_GT(more, 90U) << "the broken segment is replaced";
  EXPECT_LE(bytes_on_disk(), kCap);
}

TEST_F(SlotStoreTest, ASecondOpenerOfALiveDirectoryGetsAnother) {
  auto first = open();
  const SlotRef at = write(*first, 1);
  auto second = open();
  const auto seen = news(*second);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_FALSE(seen[0].own) << "a block of a living writer";
  EXPECT_TRUE(holds(*second, seen[0].at, 1));
  EXPECT_TRUE(std::filesystem::exists(root_ + "/r1/LOCK"));
  EXPECT_TRUE(holds(*first, at, 1));
  first.reset();
  second.reset();
  auto third = open();
  const auto again = news(*third);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again[0].own);
}

TEST_F(SlotStoreTest, FreeDirectoriesAreTakenUpByTheRankThatTheyFallTo) {
  {
    std::vector<std::unique_ptr<SlotStore>> four;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      SlotStoreOptions mine = options();
      mine.writers = 4;
      mine.writer_index = rank;
      four.push_back(open(mine));
      write(*four.back(), rank);
    }
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    SlotStoreOptions mine = options();
    mine.writers = 2;
    mine.writer_index = rank;
    auto store = open(mine);
    std::set<std::uint64_t> own;
    for (const auto& change : news(*store)) {
      if (change.own) own.insert(change.key.low64());
    }
    EXPECT_EQ(own, (std::set<std::uint64_t>{rank, rank + 2}));
  }
}

TEST_F(SlotStoreTest, TheLogsOfOthersAreFollowedAtMostOnceASecond) {
  auto writer = open();
  auto reader = open();
  const SlotRef one = write(*writer, 1);
  tick(*reader);
  auto seen = news(*reader);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].key, numbered_key(1));
  EXPECT_EQ(seen[0].checksum, checksum(payload(1)));
  EXPECT_TRUE(holds(*reader, seen[0].at, 1));

  write(*writer, 2);
  clock_.advance(500 * kMillisecond);
  ASSERT_TRUE(reader->chore().is_ok());
  EXPECT_TRUE(news(*reader).empty()) << "not before the second is over";
  clock_.advance(500 * kMillisecond);
  ASSERT_TRUE(reader->chore().is_ok());
  EXPECT_EQ(news(*reader).size(), 1U);

  writer->free(one);
  ASSERT_TRUE(writer->chore().is_ok());
  tick(*reader);
  const auto removed = news(*reader);
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].kind, Kind::kRemoved);
  EXPECT_EQ(removed[0].at, seen[0].at);
  EXPECT_FALSE(reader->resolve(seen[0].at));
}

TEST_F(SlotStoreTest, ChoresCloseUponEachOtherBringNewsAtOnce) {
  auto writer = open();
  auto reader = open();
  ASSERT_TRUE(reader->chore().is_ok());
  write(*writer, 1);
  const std::uint64_t rounds = reader->report().follow_rounds;
  for (int i = 0; i < 200 && reader->report().follow_rounds < rounds + 2; ++i) {
    clock_.advance(kMillisecond);
    ASSERT_TRUE(reader->chore().is_ok());
  }
  EXPECT_EQ(news(*reader).size(), 1U);
}

TEST_F(SlotStoreTest, AFollowerNoticesARewrittenLog) {
  auto writer = open();
  auto reader = open();
  const SlotRef gone = write(*writer, 1);
  const SlotRef kept = write(*writer, 2);
  tick(*reader);
  ASSERT_EQ(news(*reader).size(), 2U);
  // Nearly full, the log is rewritten by the next chore; its new epoch does not name the freed
  // slot.
  for (std::uint64_t i = 10; i < 310; ++i) writer->free(write(*writer, i));
  writer->free(gone);
  ASSERT_TRUE(writer->chore().is_ok());
  LogCursor cursor;
  const auto log = read_log(root_ + "/r0/s0.log", cursor, UINT64_MAX);
  ASSERT_TRUE(log);
  ASSERT_EQ(log->header.epoch, 2U);
  write(*writer, 3);
  std::map<BlockKey, int> balance;
  tick(*reader);
  for (const auto& change : news(*reader)) {
    balance[change.key] += change.kind == Kind::kAdded ? 1 : -1;
  }
  EXPECT_EQ(balance[numbered_key(1)], -1);
  EXPECT_EQ(balance[numbered_key(2)], 0) << "what is still there is no news";
  EXPECT_EQ(balance[numbered_key(3)], 1);
  EXPECT_TRUE(holds(*writer, kept, 2));
}

TEST_F(SlotStoreTest, FollowingIsBoundedAndEndsAllTheSame) {
  SlotStoreOptions mine = options();
  auto writer = open(mine);
  for (std::uint64_t i = 0; i < 300; ++i) write(*writer, i);
  mine.follow_bytes_max = 64;
  mine.changes_max = 50;
  auto reader = open(mine);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 200 && seen.size() < 300; ++i) {
    const auto some = news(*reader);
    EXPECT_LE(some.size(), 50U + 4096U);
    for (const auto& change : some) seen.insert(change.key.low64());
    tick(*reader);
  }
  EXPECT_EQ(seen.size(), 300U);
}

TEST_F(SlotStoreTest, AVanishedSegmentTakesItsBlocksAlong) {
  auto writer = open();
  auto reader = open();
  write(*writer, 1);
  write(*writer, 2);
  tick(*reader);
  const auto seen = news(*reader);
  ASSERT_EQ(seen.size(), 2U);
  remove_segment_files(root_ + "/r0/s0");
  tick(*reader);
  const auto gone = news(*reader);
  ASSERT_EQ(gone.size(), 2U);
  for (const auto& change : gone) EXPECT_EQ(change.kind, Kind::kRemoved);
  EXPECT_EQ(reader->resolve(seen[0].at).error().code(), Code::kNotFound);
  // The writer itself notices too, and starts another segment.
  clock_.advance(10 * kSecond);
  ASSERT_TRUE(writer->chore().is_ok());
  EXPECT_EQ(news(*writer).size(), 2U);
  const SlotRef fresh = write(*writer, 3);
  EXPECT_TRUE(holds(*writer, fresh, 3));
}

TEST_F(SlotStoreTest, RecheckTellsARecycledSlotFromBadBytes) {
  auto writer = open();
  auto reader = open();
  const SlotRef one = write(*writer, 1);
  write(*writer, 2);
  tick(*reader);
  const auto seen = news(*reader);
  ASSERT_EQ(seen.size(), 2U);
  writer->free(one);
  ASSERT_TRUE(writer->chore().is_ok());
  reader->recheck(seen[0]);
  reader->recheck(seen[1]);
  ASSERT_TRUE(reader->chore().is_ok());
  std::map<std::uint64_t, Kind> answers;
  for (const auto& change : news(*reader)) {
    if (change.kind != Kind::kRemoved) answers[change.key.low64()] = change.kind;
  }
  EXPECT_EQ(answers[1], Kind::kRecycled);
  EXPECT_EQ(answers[2], Kind::kBad);
}

TEST_F(SlotStoreTest, ForeignNamespacesAreIgnoredButCounted) {
  {
    auto other = options();
    other.namespace_fingerprint = 0xBEEF;
    auto store = open(other);
    for (std::uint64_t i = 0; i < 100; ++i) write(*store, i);
  }
  const std::uint64_t foreign = bytes_on_disk();
  ASSERT_GT(foreign, 0U);
  auto store = open();
  EXPECT_TRUE(news(*store).empty());
  for (std::uint64_t i = 0;; ++i) {
    const auto at = reserve(*store);
    if (!at) break;
    write_at(*store, i, *at);
    ASSERT_LE(bytes_on_disk(), kCap);
  }
}

TEST_F(SlotStoreTest, ALowerCapShrinksWhatLiesThereAtOpen) {
  {
    auto store = open();
    for (std::uint64_t i = 0; i < 400; ++i) {
      if (const auto at = reserve(*store)) write_at(*store, i, *at);
    }
  }
  SlotStoreOptions less = options();
  less.cap_bytes = kCap / 2;
  auto store = open(less);
  EXPECT_LE(bytes_on_disk(), less.cap_bytes);
  for (const auto& change : news(*store)) {
    EXPECT_TRUE(holds(*store, change.at, change.key.low64()));
  }
}

TEST_F(SlotStoreTest, CapsThatCannotBeKeptAreRefusedWithACure) {
  SlotStoreOptions huge = options();
  huge.cap_bytes = 1ULL << 60U;
  auto refused = SlotStore::open(huge);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("lower cap="), std::string::npos);
  SlotStoreOptions tiny = options();
  tiny.cap_bytes = 64 * 1024;
  refused = SlotStore::open(tiny);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("too small"), std::string::npos);
  SlotStoreOptions none = options();
  none.cap_bytes = 0;
  EXPECT_FALSE(SlotStore::open(none));
}

TEST_F(SlotStoreTest, TheCapHoldsWhileTwoStoresWriteAtOnce) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> most{0};
  std::thread watcher([&] {
    while (!stop.load()) {
      if (const auto scan = scan_root(root_)) {
        std::uint64_t bytes = 0;
        for (const auto& files : scan->segments) bytes += files.bytes;
        most.store(std::max(most.load(), bytes));
      }
    }
  });
  std::vector<std::thread> writers;
  std::atomic<std::uint64_t> written{0};
  std::filesystem::create_directories(root_);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    writers.emplace_back([&, rank] {
      SlotStoreOptions mine = options();
      mine.writers = 2;
      mine.writer_index = rank;
      auto store = open(mine);
      std::deque<SlotRef> held;
      for (std::uint64_t i = 0; i < 3000; ++i) {
        auto at = reserve(*store);
        if (!at) {
          store->free(held.front());
          held.pop_front();
          at = reserve(*store);
        }
        ASSERT_TRUE(at);
        held.push_back(write_at(*store, i, *at));
        ++written;
      }
    });
  }
  for (auto& writer : writers) writer.join();
  stop.store(true);
  watcher.join();
  EXPECT_EQ(written.load(), 6000U);
  EXPECT_LE(most.load(), kCap);
  EXPECT_GT(most.load(), kCap * 8 / 10);
}

TEST_F(SlotStoreTest, OneAboveItsShareGivesBackAnEmptySegmentWhenAnotherIsBelow) {
  auto first = open();
  std::vector<SlotRef> slots;
  for (std::uint64_t i = 0;; ++i) {
    const auto at = reserve(*first);
    if (!at) break;
    slots.push_back(write_at(*first, i, *at));
  }
  auto second = open();
  EXPECT_FALSE(reserve(*second)) << "the first has all of it";
  for (const SlotRef& at : slots) first->free(at);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(6 * kSecond);
    ASSERT_TRUE(first->chore().is_ok());
    ASSERT_TRUE(second->chore().is_ok());
    ASSERT_LE(bytes_on_disk(), kCap);
  }
  EXPECT_TRUE(reserve(*second));
}

TEST_F(SlotStoreTest, SeveralThreadsCommitIntoOneLog) {
  auto store = open();
  std::vector<SlotRef> slots;
  for (int i = 0; i < 400; ++i) {
    const auto at = reserve(*store);
    ASSERT_TRUE(at);
    slots.push_back(*at);
  }
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = t; i < slots.size(); i += 4) write_at(*store, i, slots[i]);
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(store->chore().is_ok());
  for (auto& thread : threads) thread.join();
  store.reset();
  auto again = open();
  const auto found = news(*again);
  EXPECT_EQ(found.size(), slots.size());
  for (const auto& change : found) EXPECT_TRUE(holds(*again, change.at, change.key.low64()));
}

TEST_F(SlotStoreTest, AProcessThatIsKilledLosesNothingThatWasCommitted) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = open();
    for (std::uint64_t i = 0; i < 100; ++i) write(*store, i);
    const char done = 1;
    (void)!::write(pipe_fds[1], &done, 1);
    ::pause();
    ::_exit(0);
  }
  char done = 0;
  EXPECT_EQ(::read(pipe_fds[0], &done, 1), 1);
  ::kill(child, SIGKILL);
  int state = 0;
  ::waitpid(child, &state, 0);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  auto store = open();
  const auto found = news(*store);
  EXPECT_EQ(found.size(), 100U);
  for (const auto& change : found) {
    EXPECT_TRUE(change.own);
    EXPECT_TRUE(holds(*store, change.at, change.key.low64()));
  }
}

TEST_F(SlotStoreTest, SharersAreThoseThatWereBusyJustNow) {
  auto first = open();
  auto second = open();
  clock_.advance(kSecond);
  EXPECT_EQ(first->report().sharers, 1U);
  second->mark_busy();
  EXPECT_EQ(first->report().sharers, 2U);
  EXPECT_EQ(second->report().sharers, 1U);
  clock_.advance(300 * kMillisecond);
  EXPECT_EQ(first->report().sharers, 1U);
}

TEST_F(SlotStoreTest, OpenFilesOfOthersAreBounded) {
  class CountingOpener final : public FileOpener {
   public:
    Result<std::shared_ptr<SegmentHandle>> open(const std::string& path, Access access) override {
      auto handle = plain_.open(path, access);
      if (handle && access == Access::kRead) opened_.push_back(*handle);
      return handle;
    }
    std::size_t alive() const {
      return static_cast<std::size_t>(std::count_if(
          opened_.begin(), opened_.end(), [](const auto& handle) { return !handle.expired(); }));
    }

   private:
    PosixOpener plain_{Caching::kGoverned};
    std::vector<std::weak_ptr<SegmentHandle>> opened_;
  };
  SlotStoreOptions mine = options();
  auto writer = open(mine);
  for (std::uint64_t i = 0; i < 400; ++i) write(*writer, i);
  auto opener = std::make_shared<CountingOpener>();
  mine.opener = opener;
  mine.handles_max = 2;
  auto reader = open(mine);
  for (const auto& change : news(*reader)) {
    EXPECT_TRUE(holds(*reader, change.at, change.key.low64()));
    EXPECT_LE(opener->alive(), 2U);
  }
  EXPECT_GT(opener->alive(), 0U);
}

class SharedStoreTest : public SlotStoreFixture {
 protected:
  SlotStoreOptions shared(std::uint32_t rank, std::uint32_t ranks = 2) const {
    SlotStoreOptions mine = options();
    mine.layout = StoreLayout::kShared;
    mine.writer_index = rank;
    mine.writers = ranks;
    return mine;
  }
  std::string beat_of(const std::string& rank) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      const auto path = entry.path().string();
      if (path.ends_with(".beat") && path.find("job0-" + rank + "-") != std::string::npos) {
        return path;
      }
    }
    return {};
  }
  void leave_without_goodbye(std::unique_ptr<SlotStore>& store, const std::string& rank) {
    const std::string beat = beat_of(rank);
    store.reset();
    std::ofstream(beat).flush();
    std::filesystem::last_write_time(
        beat, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(61));
  }
};

TEST_F(SharedStoreTest, RanksReadEachOthersBlocksAlsoOfTheDead) {
  auto one = open(shared(0));
  write(*one, 1);
  auto two = open(shared(1));
  auto seen = news(*two);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_FALSE(seen[0].own);
  EXPECT_TRUE(holds(*two, seen[0].at, 1));
  leave_without_goodbye(one, "0");
  tick(*two);
  EXPECT_TRUE(holds(*two, seen[0].at, 1));
  auto again = open(shared(0));
  const auto found = news(*again);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_FALSE(found[0].own) << "a dead writer's segment has no second writer";
}

TEST_F(SharedStoreTest, TheSegmentsOfTheDeadGoFirstWhenSpaceIsWantedOldestFirst) {
  auto old = open(shared(0, 1));
  for (std::uint64_t i = 0; i < 400; ++i) {
    if (const auto at = reserve(*old)) write_at(*old, i, *at);
  }
  leave_without_goodbye(old, "0");
  auto fresh = open(shared(0, 1));
  const auto inherited = news(*fresh);
  ASSERT_GT(inherited.size(), 300U);
  for (std::uint64_t i = 1000; i < 1050; ++i) {
    write(*fresh, i);
    ASSERT_LE(bytes_on_disk(), kCap);
  }
  tick(*fresh);
  std::set<std::uint64_t> removed;
  for (const auto& change : news(*fresh)) {
    if (change.kind == Kind::kRemoved) removed.insert(change.key.low64());
  }
  ASSERT_FALSE(removed.empty());
  EXPECT_LT(removed.size(), inherited.size()) << "no more than was wanted";
  EXPECT_TRUE(removed.contains(0)) << "the oldest first";
}

TEST_F(SharedStoreTest, ALivingWritersSegmentsAreNeverTaken) {
  auto one = open(shared(0, 1));
  std::vector<SlotRef> slots;
  for (std::uint64_t i = 0; i < 400; ++i) {
    if (const auto at = reserve(*one)) slots.push_back(write_at(*one, i, *at));
  }
  auto two = open(shared(1, 1));
  EXPECT_FALSE(reserve(*two));
  for (std::size_t i = 0; i < slots.size(); ++i) EXPECT_TRUE(holds(*one, slots[i], i));
}

TEST_F(SharedStoreTest, AWriterWhoseSegmentWasAdoptedForgetsItAndStartsAnother) {
  auto one = open(shared(0));
  const SlotRef at = write(*one, 1);
  const auto scan = scan_root(root_);
  ASSERT_TRUE(scan);
  ASSERT_EQ(scan->segments.size(), 1U);
  std::ofstream(scan->segments[0].base + ".adopt.1").flush();
  clock_.advance(10 * kSecond);
  ASSERT_TRUE(one->chore().is_ok());
  const auto lost = news(*one);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].kind, Kind::kRemoved);
  EXPECT_TRUE(lost[0].own);
  EXPECT_FALSE(one->resolve(at));
  EXPECT_NE(write(*one, 2).segment, at.segment);
}

TEST_F(SharedStoreTest, SegmentNamesAreUniqueOverRestarts) {
  for (int run = 0; run < 3; ++run) write(*open(shared(0)), static_cast<std::uint64_t>(run));
  const auto scan = scan_root(root_);
  ASSERT_TRUE(scan);
  EXPECT_EQ(scan->segments.size(), 3U);
}

}  // namespace
}  // namespace kvstream::test
