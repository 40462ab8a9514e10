// The example of docs/add-a-tier.md keeps the contract.
#include <array>
#include <filesystem>
#include <set>
#include <vector>

#include "contract/tier_contract.hpp"
#include "docs/examples/directory_tier.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Directory, TierContract,
                         testing::Values(TierContractCase{.name = "directory",
                                                          .make = directory_tier_factory()}),
                         TierContractCase::name_of);

TEST(DirectoryTier, OfTwoFilesInOneSlotRecoveryTakesTheNewer) {
  constexpr std::uint64_t kSlots = 16;
  const TempDirectory directory;
  TierSpec spec;
  spec.name = "d";
  spec.path = directory.path();
  spec.cap_bytes = kSlots * 4096;
  TierContext context;
  context.block_bytes_max = 4096;
  const std::byte byte{};
  const auto fill = [&](DirectoryTier& tier, std::uint64_t first_number) {
    std::vector<SlotRef> slots;
    for (std::uint64_t i = 0; i < kSlots; ++i) {
      WriteOp op;
      op.key = key_of(first_number + i);
      op.at = tier.reserve(1).value();
      op.size_bytes = 1;
      op.from = &byte;
      EXPECT_TRUE(tier.write(op).is_ok());
      slots.push_back(op.at);
    }
    return slots;
  };
  const std::string own = directory.path() + "/rank0", kept = directory.path() + "/kept";
  {
    const auto tier = DirectoryTier::open(spec, context).value();
    const auto old = fill(*tier, 100);
    std::filesystem::copy(own, kept);
    for (const SlotRef at : old) tier->free(at);
    fill(*tier, 200);
  }
  // As if the process had ended before the old files were unlinked.
  std::filesystem::copy(kept, own);
  const auto tier = DirectoryTier::open(spec, context).value();
  std::array<CatalogChange, 2 * kSlots> news;
  ASSERT_EQ(tier->changes(news), kSlots);
  std::set<BlockKey> found, want;
  for (std::uint64_t i = 0; i < kSlots; ++i) {
    found.insert(news[i].key);
    want.insert(key_of(200 + i));
  }
  EXPECT_EQ(found, want);
  EXPECT_TRUE(tier->chore().is_ok());
  const std::filesystem::directory_iterator files(own);
  EXPECT_EQ(std::distance(begin(files), end(files)), static_cast<std::ptrdiff_t>(kSlots));
}

}  // namespace
}  // namespace kvstream::test
