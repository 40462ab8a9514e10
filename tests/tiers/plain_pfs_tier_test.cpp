#include "tiers/plain_pfs_tier.hpp"

#include <array>
#include <atomic>
#include <thread>

#include "tiers/file_tier_fixture.hpp"

namespace kvstream::test {
namespace {

/// Stands for the HDF5 flavour: its data begin elsewhere, its files end otherwise.
class OtherFormat final : public SegmentFormat {
 public:
  FormatId id() const override { return FormatId::kHdf5; }
  std::uint64_t file_bytes_max(std::uint32_t slots, std::uint32_t slot_bytes) const override {
    return kHead + std::uint64_t{slots} * slot_bytes;
  }
  Result<SegmentMade> create(const SegmentSpec& spec) const override {
    const UniqueFd fd(::open(spec.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    const std::uint64_t bytes = file_bytes_max(spec.slots, spec.slot_bytes);
    const auto allocated = preallocate(fd.get(), bytes, spec.path);
    if (!allocated) return failure(allocated.error());
    return SegmentMade{kHead, bytes, *allocated};
  }

 private:
  static constexpr std::uint64_t kHead = 256 * 1024;
};

class PlainPfsTierTest : public FileTierFixture, public testing::WithParamInterface<Caching> {
 protected:
  PlainPfsOptions options() const {
    PlainPfsOptions options;
    options.allow_direct = GetParam() == Caching::kDirect;
    options.follow_interval_ns = 0;
    return options;
  }
  std::unique_ptr<PlainPfsTier> open(const TierContext& with) {
    auto tier = PlainPfsTier::open(spec(), with, options());
    EXPECT_TRUE(tier) << tier.error().to_string();
    return tier ? std::move(*tier) : nullptr;
  }
  static bool write(BlockingTier& tier, std::uint64_t number, SlotRef at) {
    const AlignedBlock from(kBlock);
    fill(from, number, kBlock);
    return tier.write(write_op(number, at, from)).is_ok();
  }
  static Code read(BlockingTier& tier, std::uint64_t number, SlotRef at) {
    const AlignedBlock into(kBlock);
    const std::array<Span, 2> spans{Span{into.data(), 4096},
                                    Span{into.data() + 4096, kBlock - 4096}};
    const auto got = tier.read({number, at, kBlock, spans});
    if (!got) return got.error().code();
    const AlignedBlock expected(kBlock);
    fill(expected, number, kBlock);
    return *got == kBlock && std::memcmp(into.data(), expected.data(), kBlock) == 0
               ? Code::kOk
               : Code::kCorrupt;
  }
};

TEST_P(PlainPfsTierTest, BlocksComeBackAndTheModeSaysHow) {
  auto tier = open(context());
  const SlotRef at = reserve(*tier);
  ASSERT_TRUE(write(*tier, 1, at));
  EXPECT_EQ(read(*tier, 1, at), Code::kOk);
  const bool direct = tier->traits().alignment_bytes == 4096;
  EXPECT_TRUE(tier->report().mode.starts_with(direct ? "threads+O_DIRECT" : "threads+buffered"));
  EXPECT_FALSE(direct && GetParam() == Caching::kGoverned);
}

TEST_P(PlainPfsTierTest, AnotherRankReadsWhatOneWrote) {
  auto one = open(context(0, 2));
  auto two = open(context(1, 2));
  ASSERT_TRUE(write(*one, 1, reserve(*one)));
  ASSERT_TRUE(two->chore().is_ok());
  const auto seen = news(*two);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_FALSE(seen[0].own);
  EXPECT_EQ(read(*two, 1, seen[0].at), Code::kOk);
  one.reset();
  EXPECT_EQ(read(*two, 1, seen[0].at), Code::kOk) << "also when its writer is gone";
}

TEST_P(PlainPfsTierTest, SegmentsOfTheOtherFlavourAreRead) {
  SlotStoreOptions other = slot_store_options(spec(), context(1, 2));
  other.layout = StoreLayout::kShared;
  other.writer_index = 1;
  other.writers = 2;
  other.format = std::make_shared<OtherFormat>();
  other.opener = std::make_shared<PosixOpener>(Caching::kGoverned);
  auto store = SlotStore::open(other);
  ASSERT_TRUE(store) << store.error().to_string();
  const SlotRef at = reserve(**store);
  const auto address = (*store)->prepare_write(at);
  ASSERT_TRUE(address);
  const AlignedBlock from(kBlock);
  fill(from, 8, kBlock);
  ASSERT_TRUE(pwrite_all(static_cast<const PosixHandle&>(*address->handle).fd(), from.data(),
                         kBlock, address->offset_bytes, "t")
                  .is_ok());
  ASSERT_TRUE((*store)->commit(write_op(8, at, from)).is_ok());
  auto tier = open(context(0, 2));
  const auto seen = news(*tier);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(read(*tier, 8, seen[0].at), Code::kOk);
}

TEST_P(PlainPfsTierTest, NothingStaysInThePageCache) {
  auto tier = open(context());
  std::vector<SlotRef> slots;
  for (std::uint64_t i = 0; i < 20; ++i) {
    slots.push_back(reserve(*tier));
    ASSERT_TRUE(write(*tier, i, slots.back()));
  }
  EXPECT_LE(cached_bytes(), 64U * 1024U) << "after the writes";
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(read(*tier, i, slots[i]), Code::kOk);
  EXPECT_LE(cached_bytes(), 64U * 1024U) << "after the reads";
}

TEST_P(PlainPfsTierTest, ErrorsAreCountedAndSaid) {
  auto tier = open(context());
  const SlotRef at = reserve(*tier);
  ASSERT_TRUE(write(*tier, 1, at));
  EXPECT_FALSE(write(*tier, 2, at)) << "a published slot is never written in place";
  EXPECT_EQ(read(*tier, 1, {at.segment, at.slot, at.generation + 1}), Code::kNotFound);
  EXPECT_EQ(tier->report().errors, 0U) << "out-of-date hints are no errors of the tier";
  for (const auto& path : segments()) std::filesystem::resize_file(path, 8192);
  EXPECT_EQ(read(*tier, 1, at), Code::kIoError);
  EXPECT_EQ(tier->report().errors, 1U);
}

TEST_P(PlainPfsTierTest, ManyThreadsReadAndWriteAtOnce) {
  auto tier = open(context());
  std::vector<SlotRef> slots;
  for (int i = 0; i < 64; ++i) slots.push_back(reserve(*tier));
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = t; i < slots.size(); i += 4) {
        if (write(*tier, i, slots[i]) && read(*tier, i, slots[i]) == Code::kOk) ++good;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good.load(), 64);
}

INSTANTIATE_TEST_SUITE_P(Both, PlainPfsTierTest,
                         testing::Values(Caching::kDirect, Caching::kGoverned),
                         [](const auto& which) {
                           return which.param == Caching::kDirect ? "Direct" : "Buffered";
                         });

}  // namespace
}  // namespace kvstream::test
