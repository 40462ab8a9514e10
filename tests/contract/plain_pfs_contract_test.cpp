#include "contract/tier_contract.hpp"
#include "tiers/plain_pfs_tier.hpp"

namespace kvstream::test {
namespace {

INSTANTIATE_TEST_SUITE_P(PlainPfs, TierContract,
                         testing::Values(TierContractCase{.name = "pfs",
                                                          .make = plain_pfs_tier_factory(),
                                                          .after_reopen = AfterReopen::kOthers}),
                         TierContractCase::name_of);

}  // namespace
}  // namespace kvstream::test
