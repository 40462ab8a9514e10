// The pfs tier: what one rank writes, the others find and read, with the writer or without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "core/checksum.hpp"
#include "mpi/segment_files.hpp"
#include "mpi/shared_directory.hpp"
#include "mpi_tiers/mpi_file.hpp"
#include "mpi_tiers/mpi_pfs_tier.hpp"

namespace kvstream {
namespace {

constexpr Nanos kPatience = 20 * kSecond;
constexpr std::uint32_t kBlockBytesMax = 256 * 1024;
constexpr std::uint32_t kBlocks = 24;

BlockKey key_of(std::uint64_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

/// Odd sizes: the last piece of a block is rarely a whole cache block.
std::uint32_t size_of(std::uint64_t number) {
  return static_cast<std::uint32_t>(kBlockBytesMax - number * 4099);
}

Nanos now() { return SteadyClock::instance().now(); }

class PfsTier : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(directory_.ok()); }

  SlotStoreOptions options(std::uint32_t writer_index) const {
    TierSpec spec;
    spec.name = "pfs";
    spec.kind = "pfs";
    spec.path = directory_.path() + "/pfs";
    spec.cap_bytes = 512ULL << 20U;
    TierContext context;
    context.rank = writer_index;
    context.ranks = directory_.ranks() + 1;
    context.namespace_fingerprint = 0xFEED;
    context.block_bytes_max = kBlockBytesMax;
    context.clock = &SteadyClock::instance();
    SlotStoreOptions made = MpiPfsTier::store_options(spec, context);
    made.segment_bytes_max = 4ULL << 20U;
    made.follow_interval_ns = 5 * kMillisecond;
    return made;
  }
  std::unique_ptr<MpiPfsTier> open(std::uint32_t writer_index) {
    auto tier = MpiPfsTier::open_with(directory_.session(), "pfs", options(writer_index));
    if (!tier) {
      ADD_FAILURE() << tier.error().to_string();
      return nullptr;
    }
    return std::move(*tier);
  }
  /// With one rank alone, that rank reads too, through a tier of its own.
  bool is_writer() const { return directory_.rank() == 0; }
  bool is_reader() const { return directory_.rank() != 0 || directory_.ranks() == 1; }

  SharedDirectory directory_;
};

/// Does the chores that reserve() waits for.
template <class Store>
Result<SlotRef> reserve(Store& store, std::uint32_t size_bytes) {
  auto at = store.reserve(size_bytes);
  for (const Nanos deadline = now() + kPatience;
       !at && at.error().code() == Code::kOverloaded && now() < deadline;) {
    if (Status chore = store.chore(); !chore.is_ok()) return failure(chore);
    at = store.reserve(size_bytes);
  }
  return at;
}

/// What a tier's own writes are known by: it does not tell its owner of them again.
using Known = std::map<BlockKey, CatalogChange>;

void write_block(MpiPfsTier& tier, std::uint64_t number, Known* written = nullptr) {
  const std::uint32_t size_bytes = size_of(number);
  const auto bytes = bytes_of(number, size_bytes);
  WriteOp op;
  op.key = key_of(number);
  op.size_bytes = size_bytes;
  op.checksum = checksum({bytes.data(), bytes.size()});
  op.from = bytes.data();
  auto at = reserve(tier, size_bytes);
  ASSERT_TRUE(at) << at.error().to_string();
  op.at = *at;
  const Status status = tier.write(op);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  if (written != nullptr) {
    (*written)[op.key] = {
        .own = true, .key = op.key, .at = op.at, .size_bytes = size_bytes, .checksum = op.checksum};
  }
}

/// Follows until `count` blocks are known or patience ends.
Known follow(MpiPfsTier& tier, std::size_t count) {
  Known known;
  std::array<CatalogChange, 16> news;
  for (const Nanos deadline = now() + kPatience; known.size() < count && now() < deadline;) {
    EXPECT_TRUE(tier.chore().is_ok());
    const std::size_t got = tier.changes(news);
    for (std::size_t i = 0; i < got; ++i) {
      if (news[i].kind == CatalogChange::Kind::kAdded) known[news[i].key] = news[i];
      if (news[i].kind == CatalogChange::Kind::kRemoved) known.erase(news[i].key);
    }
    if (got == 0) std::this_thread::yield();
  }
  return known;
}

/// Over `spans` destinations; the bytes must be those that rank 0 wrote.
void expect_right_bytes(MpiPfsTier& tier, const CatalogChange& block, std::uint64_t number,
                        std::size_t spans) {
  ASSERT_EQ(block.size_bytes, size_of(number));
  std::vector<std::byte> into(block.size_bytes);
  std::vector<Span> pieces;
  const std::size_t piece = (into.size() + spans - 1) / spans;
  for (std::size_t begin = 0; begin < into.size(); begin += piece) {
    pieces.push_back({into.data() + begin, std::min(piece, into.size() - begin)});
  }
  ReadOp op;
  op.at = block.at;
  op.size_bytes = block.size_bytes;
  op.into = pieces;
  auto got = tier.read(op);
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(*got, block.size_bytes);
  EXPECT_TRUE(into == bytes_of(number, into.size())) << "block " << number;
  EXPECT_EQ(checksum({into.data(), into.size()}), block.checksum);
}

void expect_all_right(MpiPfsTier& tier, const Known& known) {
  ASSERT_EQ(known.size(), kBlocks);
  for (std::uint64_t number = 0; number < kBlocks; ++number) {
    const auto found = known.find(key_of(number));
    ASSERT_NE(found, known.end());
    expect_right_bytes(tier, found->second, number, 1 + number % 5);
  }
}

std::vector<std::string> segment_files(const std::string& root, const std::string& extension) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  return paths;
}

TEST_F(PfsTier, OthersFindWhatRankZeroWritesAndReadItAlsoAfterItHasClosed) {
  auto reader = is_reader() ? open(directory_.rank() + 1) : nullptr;
  auto writer = is_writer() ? open(0) : nullptr;
  directory_.meet();
  if (writer) {
    for (std::uint64_t number = 0; number < kBlocks; ++number) write_block(*writer, number);
  }
  Known known;
  if (reader) {
    known = follow(*reader, kBlocks);
    for (const auto& [key, block] : known) EXPECT_FALSE(block.own);
    expect_all_right(*reader, known);
  }
  directory_.meet();
  writer.reset();
  directory_.meet();
  if (reader) expect_all_right(*reader, known);
  directory_.meet();
}

TEST_F(PfsTier, ALaterProcessFindsWhatAnEarlierOneLeft) {
  if (is_writer()) {
    auto writer = open(0);
    ASSERT_TRUE(writer);
    for (std::uint64_t number = 0; number < kBlocks; ++number) write_block(*writer, number);
  }
  directory_.meet();
  auto reader = open(directory_.rank() + 1);
  ASSERT_TRUE(reader);
  expect_all_right(*reader, follow(*reader, kBlocks));
  directory_.meet();
}

TEST_F(PfsTier, ReadsSegmentsOfAProcessWithoutHdf5) {
  if (is_writer()) {
    SlotStoreOptions plain = options(0);
    plain.format = std::make_shared<PlainFormat>();
    plain.opener = std::make_shared<MpiFileOpener>(directory_.session());
    auto store = SlotStore::open(std::move(plain));
    ASSERT_TRUE(store) << store.error().to_string();
    const auto bytes = bytes_of(3, size_of(3));
    auto at = reserve(**store, size_of(3));
    ASSERT_TRUE(at) << at.error().to_string();
    WriteOp op;
    op.key = key_of(3);
    op.at = *at;
    op.size_bytes = size_of(3);
    op.checksum = checksum({bytes.data(), bytes.size()});
    auto address = (*store)->prepare_write(*at);
    ASSERT_TRUE(address) << address.error().to_string();
    const auto& file = static_cast<const MpiFile&>(*address->handle);
    ASSERT_TRUE(file.write(address->offset_bytes, {bytes.data(), bytes.size()}).is_ok());
    ASSERT_TRUE((*store)->commit(op).is_ok());
  }
  directory_.meet();
  EXPECT_EQ(segment_files(directory_.path(), ".seg").size(), 1U);
  auto reader = open(directory_.rank() + 1);
  ASSERT_TRUE(reader);
  const auto known = follow(*reader, 1);
  ASSERT_EQ(known.size(), 1U);
  expect_right_bytes(*reader, known.begin()->second, 3, 1);
  directory_.meet();
}

TEST_F(PfsTier, NothingThatItWritesOrReadsStaysInThePageCache) {
  const std::string unseen = page_cache_unseen(directory_.path());
  if (!unseen.empty()) GTEST_SKIP() << unseen;
  if (is_writer()) {
    auto tier = open(0);
    ASSERT_TRUE(tier);
    Known written;
    for (std::uint64_t number = 0; number < kBlocks; ++number) {
      write_block(*tier, number, &written);
    }
    const auto files = segment_files(directory_.path(), ".h5");
    ASSERT_FALSE(files.empty());
    const auto cached_slots = [&] {
      std::int64_t sum = 0;
      for (const auto& file : files) {
        // The slots; HDF5's header and the odd block at its end may stay.
        const auto end = std::filesystem::file_size(file) / 4096 * 4096;
        const std::uint64_t header = 64 * 1024;
        sum += cached_bytes(file, header, end - header);
      }
      return sum;
    };
    EXPECT_EQ(cached_slots(), 0);
    expect_all_right(*tier, written);
    EXPECT_EQ(cached_slots(), 0);
  }
  directory_.meet();
}

TEST_F(PfsTier, AllRanksWriteAtOnceAndSeeEachOthersBlocks) {
  auto tier = open(directory_.rank());
  ASSERT_TRUE(tier);
  const std::uint64_t per_rank = kBlocks / directory_.ranks();
  const std::uint64_t first = directory_.rank() * per_rank;
  std::vector<WriteOp> ops;
  std::vector<std::vector<std::byte>> bytes;
  Known known;
  for (std::uint64_t number = first; number < first + per_rank; ++number) {
    bytes.push_back(bytes_of(number, size_of(number)));
    auto at = reserve(*tier, size_of(number));
    ASSERT_TRUE(at) << at.error().to_string();
    WriteOp op;
    op.key = key_of(number);
    op.at = *at;
    op.size_bytes = size_of(number);
    op.checksum = checksum({bytes.back().data(), bytes.back().size()});
    op.from = bytes.back().data();
    known[op.key] = {.own = true,
                     .key = op.key,
                     .at = op.at,
                     .size_bytes = op.size_bytes,
                     .checksum = op.checksum};
    ops.push_back(op);
  }
  std::atomic<std::size_t> next{0};
  std::atomic<std::uint32_t> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < ops.size(); i = next++) {
        if (!tier->write(ops[i]).is_ok()) ++failed;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0U);
  known.merge(follow(*tier, per_rank * (directory_.ranks() - 1)));
  for (std::uint64_t number = 0; number < per_rank * directory_.ranks(); ++number) {
    const auto found = known.find(key_of(number));
    ASSERT_NE(found, known.end()) << "block " << number;
    expect_right_bytes(*tier, found->second, number, 1);
  }
  directory_.meet();
}

TEST_F(PfsTier, SaysWhatItIsAndWhatItReallyDoes) {
  auto tier = open(directory_.rank());
  ASSERT_TRUE(tier);
  const TierTraits& traits = tier->traits();
  EXPECT_EQ(traits.kind, "pfs");
  EXPECT_TRUE(traits.persistent && traits.readable_without_owner);
  EXPECT_EQ(traits.io_threads, directory_.session()->concurrent_calls() ? 8U : 1U);
  EXPECT_EQ(traits.device_id, *device_id_of(directory_.path()));
  EXPECT_EQ(tier->report().mode.rfind("hdf5+mpi-io(", 0), 0U) << tier->report().mode;
  directory_.meet();
}

TEST_F(PfsTier, TheFactoryMakesABlockingTier) {
  TierSpec spec;
  spec.name = "big";
  spec.kind = "pfs";
  spec.path = directory_.path() + "/factory";
  spec.cap_bytes = 256ULL << 20U;
  TierContext context;
  context.rank = directory_.rank();
  context.ranks = directory_.ranks();
  context.block_bytes_max = kBlockBytesMax;
  context.clock = &SteadyClock::instance();
  auto made = mpi_pfs_tier_factory()(spec, context);
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_TRUE(std::holds_alternative<std::unique_ptr<BlockingTier>>(*made));
  EXPECT_EQ(std::get<std::unique_ptr<BlockingTier>>(*made)->traits().name, "big");
  directory_.meet();
}

}  // namespace
}  // namespace kvstream
