// The example of docs/add-a-tier.md keeps the contract.
#include <array>
#include <filesystem>

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
  const TempDirectory directory;
  TierSpec spec;
  spec.name = "d";
  spec.path = directory.path();
  spec.cap_bytes = 64U << 10U;
  TierContext context;
  context.block_bytes_max = 64U << 10U;  // one slot
  const std::byte byte{};
  const auto written = [&](DirectoryTier& tier, std::uint64_t number) {
    WriteOp op;
    op.key = key_of(number);
    op.at = tier.reserve(1).value();
    op.size_bytes = 1;
    op.from = &byte;
    EXPECT_TRUE(tier.write(op).is_ok());
    return op.at;
  };
  const std::string kept = directory.path() + "/kept";
  {
    const auto tier = DirectoryTier::open(spec, context).value();
    tier->free(written(*tier, 1));
    std::filesystem::copy(directory.path() + "/rank0", kept);
    written(*tier, 2);
  }
  // As if the process had ended before the first file was unlinked.
  std::filesystem::copy(kept, directory.path() + "/rank0");
  const auto tier = DirectoryTier::open(spec, context).value();
  std::array<CatalogChange, 4> news;
  ASSERT_EQ(tier->changes(news), 1U);
  EXPECT_EQ(news[0].key, key_of(2));
  EXPECT_TRUE(tier->chore().is_ok());
  const std::filesystem::directory_iterator files(directory.path() + "/rank0");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

}  // namespace
}  // namespace kvstream::test
