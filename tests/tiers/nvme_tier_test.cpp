#include "tiers/nvme_tier.hpp"

#include <array>
#include <set>

#include "tiers/file_tier_fixture.hpp"

namespace kvstream::test {
namespace {

class NvmeTierTest : public FileTierFixture {
 protected:
  std::unique_ptr<NvmeTier> open(const TierContext& with, const NvmeOptions& options = {}) {
    auto tier = NvmeTier::open(spec(), with, options);
    if (!tier && tier.error().code() == Code::kUnavailable) return nullptr;
    EXPECT_TRUE(tier) << tier.error().to_string();
    return tier ? std::move(*tier) : nullptr;
  }
  std::unique_ptr<NvmeTier> open() { return open(context()); }

  /// Waits as the progress thread does: on wait_fd() alone, at most 20 s in all.
  static std::vector<Completion> collect(Tier& tier, std::size_t count) {
    std::vector<Completion> all;
    std::array<Completion, 3> some;
    for (int i = 0; i < 2000 && all.size() < count; ++i) {
      const std::size_t got = tier.poll(some);
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got));
      if (got > 0) continue;
      pollfd ready{tier.wait_fd(), POLLIN, 0};
      ::poll(&ready, 1, 10);
    }
    return all;
  }
  static Code write(Tier& tier, std::uint64_t number, SlotRef at, std::uint32_t size = kBlock) {
    const AlignedBlock from(size);
    fill(from, number, size);
    const WriteOp op = write_op(number, at, from, size);
    if (tier.submit_writes({&op, 1}) != 1) return Code::kOverloaded;
    const auto done = collect(tier, 1);
    return done.size() == 1 && done[0].id == number ? done[0].code : Code::kTimedOut;
  }
  static Code read(Tier& tier, std::uint64_t number, SlotRef at, std::uint32_t size = kBlock,
                   std::size_t pieces = 1) {
    const std::uint32_t padded = round_up(size, tier.traits().alignment_bytes);
    const AlignedBlock into(padded + 4096);
    std::vector<Span> spans;
    std::size_t done_bytes = 0;
    for (std::size_t i = 1; i < pieces; ++i) {
      spans.push_back({into.data() + done_bytes, 4096});
      done_bytes += 4096;
    }
    spans.push_back({into.data() + done_bytes, padded - done_bytes});
    const ReadOp op{number, at, size, spans};
    if (tier.submit_reads({&op, 1}) != 1) return Code::kOverloaded;
    const auto done = collect(tier, 1);
    if (done.size() != 1 || done[0].id != number) return Code::kTimedOut;
    if (done[0].code != Code::kOk) return done[0].code;
    const AlignedBlock expected(size);
    fill(expected, number, size);
    if (into.data()[padded] != std::byte{0xEE}) return Code::kCorrupt;
    return std::memcmp(into.data(), expected.data(), size) == 0 ? Code::kOk : Code::kCorrupt;
  }
};

#define OPEN_OR_SKIP(tier, ...)  \
  auto tier = open(__VA_ARGS__); \
  if (!tier) GTEST_SKIP() << "this system refuses io_uring"

TEST_F(NvmeTierTest, BlocksComeBackOverSeveralSpansAndAfterAReopen) {
  SlotRef at;
  {
    OPEN_OR_SKIP(tier);
    at = reserve(*tier);
    EXPECT_EQ(write(*tier, 5, at, 30'001), Code::kOk);
    EXPECT_EQ(read(*tier, 5, at, 30'001), Code::kOk);
    EXPECT_EQ(read(*tier, 5, at, 30'001, 8), Code::kOk);
    EXPECT_TRUE(tier->report().mode.starts_with("io_uring+")) << tier->report().mode;
    EXPECT_EQ(tier->report().errors, 0U);
  }
  OPEN_OR_SKIP(tier);
  const auto found = news(*tier);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].own);
  EXPECT_EQ(found[0].size_bytes, 30'001U);
  EXPECT_EQ(read(*tier, 5, found[0].at, 30'001), Code::kOk);
}

TEST_F(NvmeTierTest, NoMoreThanTheMostInFlightIsTakenAndEachCompletesOnce) {
  OPEN_OR_SKIP(tier);
  const std::uint32_t most = tier->traits().in_flight_max;
  std::vector<AlignedBlock> blocks;
  std::vector<WriteOp> writes;
  for (std::uint64_t i = 0; i < most + 20; ++i) {
    blocks.emplace_back(kBlock);
    fill(blocks.back(), i, kBlock);
    writes.push_back(write_op(i, reserve(*tier), blocks.back()));
  }
  EXPECT_EQ(tier->submit_writes(writes), most);
  std::set<std::uint64_t> done;
  for (const auto& completion : collect(*tier, most)) {
    EXPECT_EQ(completion.code, Code::kOk);
    EXPECT_TRUE(done.insert(completion.id).second);
  }
  EXPECT_EQ(done.size(), most);
  for (std::uint64_t i = 0; i < most; ++i) {
    EXPECT_EQ(read(*tier, i, writes[i].at), Code::kOk);
  }
}

TEST_F(NvmeTierTest, RanksOfANodeReadEachOthersBlocks) {
  NvmeOptions at_once;
  at_once.follow_interval_ns = 0;
  OPEN_OR_SKIP(one, context(0, 2), at_once);
  OPEN_OR_SKIP(two, context(1, 2), at_once);
  EXPECT_EQ(write(*one, 1, reserve(*one)), Code::kOk);
  ASSERT_TRUE(two->chore().is_ok());
  const auto seen = news(*two);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_FALSE(seen[0].own);
  EXPECT_EQ(read(*two, 1, seen[0].at), Code::kOk);
}

TEST_F(NvmeTierTest, IoErrorsCompleteExactlyOnce) {
  OPEN_OR_SKIP(tier);
  const SlotRef at = reserve(*tier);
  ASSERT_EQ(write(*tier, 1, at), Code::kOk);
  for (const auto& path : segments()) std::filesystem::resize_file(path, 8192);
  EXPECT_EQ(read(*tier, 1, at), Code::kIoError) << "a short read";
  EXPECT_TRUE(collect(*tier, 0).empty());
  std::array<Completion, 4> more;
  EXPECT_EQ(tier->poll(more), 0U);
  EXPECT_EQ(tier->report().errors, 1U);
}

TEST_F(NvmeTierTest, AFailedWriteLeavesNothingBehind) {
  {
    NvmeOptions options;
    options.allow_direct = false;
    options.opener = std::make_shared<ReadOnlyOpener>();
    OPEN_OR_SKIP(tier, context(), options);
    const SlotRef at = reserve(*tier);
    EXPECT_EQ(write(*tier, 1, at), Code::kIoError);
    tier->free(at);
    EXPECT_EQ(tier->report().used_bytes, 0U);
  }
  OPEN_OR_SKIP(tier);
  EXPECT_TRUE(news(*tier).empty());
}

TEST_F(NvmeTierTest, OperationsThatCannotBeStartedCompleteWithTheirReason) {
  OPEN_OR_SKIP(tier);
  const SlotRef at = reserve(*tier);
  EXPECT_EQ(write(*tier, 1, {at.segment, at.slot, at.generation + 1}), Code::kNotFound);
  ASSERT_EQ(write(*tier, 1, at), Code::kOk);
  EXPECT_EQ(write(*tier, 2, at), Code::kNotFound) << "published slots are never written in place";
  EXPECT_EQ(read(*tier, 1, {at.segment + 9, 0, 1}), Code::kNotFound);
  const AlignedBlock into(kBlock);
  const std::array<Span, 1> short_span{Span{into.data(), kBlock - 4096}};
  const ReadOp op{9, at, kBlock, short_span};
  ASSERT_EQ(tier->submit_reads({&op, 1}), 1U);
  const auto done = collect(*tier, 1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].code, Code::kInvalidArgument);
  EXPECT_EQ(read(*tier, 1, at), Code::kOk);
}

TEST_F(NvmeTierTest, ABufferedTierLeavesNothingInThePageCache) {
  NvmeOptions options;
  options.allow_direct = false;
  OPEN_OR_SKIP(tier, context(), options);
  EXPECT_TRUE(tier->report().mode.starts_with("io_uring+buffered")) << tier->report().mode;
  EXPECT_EQ(tier->traits().alignment_bytes, 1U);
  std::vector<SlotRef> slots;
  for (std::uint64_t i = 0; i < 20; ++i) {
    slots.push_back(reserve(*tier));
    ASSERT_EQ(write(*tier, i, slots.back()), Code::kOk);
  }
  EXPECT_LE(cached_bytes(), 64U * 1024U) << "after the writes";
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(read(*tier, i, slots[i]), Code::kOk);
  EXPECT_LE(cached_bytes(), 64U * 1024U) << "after the reads";
}

TEST_F(NvmeTierTest, WhereIoUringIsRefusedThreadsReadAndWriteTheSameFiles) {
  NvmeOptions options;
  options.engine = IoEngine::kThreads;
  auto made = nvme_tier_factory(options)(spec(), context());
  ASSERT_TRUE(made) << made.error().to_string();
  auto* twin = std::get_if<std::unique_ptr<BlockingTier>>(&*made);
  ASSERT_NE(twin, nullptr);
  EXPECT_TRUE((*twin)->report().mode.starts_with("threads+")) << (*twin)->report().mode;
  EXPECT_EQ((*twin)->traits().kind, "nvme");
  const SlotRef at = reserve(**twin);
  const AlignedBlock from(kBlock);
  fill(from, 3, kBlock);
  ASSERT_TRUE((*twin)->write(write_op(3, at, from)).is_ok());
  twin->reset();
  OPEN_OR_SKIP(tier);
  const auto found = news(*tier);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(read(*tier, 3, found[0].at), Code::kOk);
}

TEST_F(NvmeTierTest, AFileInPlaceOfTheDirectoryIsRefusedWithOneLine) {
  TierSpec wrong = spec();
  wrong.path = "/dev/null/sub";
  const auto made = nvme_tier_factory()(wrong, context());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find("/dev/null/sub"), std::string::npos);
  EXPECT_EQ(made.error().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kvstream::test
