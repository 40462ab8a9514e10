#include "contract/tier_contract.hpp"
#include "tiers/host_tier.hpp"

namespace kvstream::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, TierContract,
                         testing::Values(TierContractCase{.name = "host",
                                                          .make = host_tier_factory()}),
                         TierContractCase::name_of);

}  // namespace
}  // namespace kvstream::test
