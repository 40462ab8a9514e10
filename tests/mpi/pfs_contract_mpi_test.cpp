// The pfs tier over HDF5 and MPI-IO keeps the contract of every tier.
#include "contract/tier_contract.hpp"
#include "mpi_tiers/mpi_pfs_tier.hpp"

namespace kvstream::test {
namespace {

INSTANTIATE_TEST_SUITE_P(MpiPfs, TierContract,
                         testing::Values(TierContractCase{.name = "mpi_pfs",
                                                          .make = mpi_pfs_tier_factory(),
                                                          .after_reopen = AfterReopen::kOthers}),
                         TierContractCase::name_of);

}  // namespace
}  // namespace kvstream::test
