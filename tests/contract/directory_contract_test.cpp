// The example of docs/add-a-tier.md keeps the contract.
#include "contract/tier_contract.hpp"
#include "docs/examples/directory_tier.hpp"

namespace kvstream::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Directory, TierContract,
                         testing::Values(TierContractCase{.name = "directory",
                                                          .make = directory_tier_factory()}),
                         TierContractCase::name_of);

}  // namespace
}  // namespace kvstream::test
