// What the pfs tier over HDF5 and MPI-IO reads comes from the device.
#include "mpi_tiers/mpi_pfs_tier.hpp"
#include "tiers/device_bytes.hpp"

namespace kvstream::test {
namespace {

INSTANTIATE_TEST_SUITE_P(MpiPfs, DeviceBytes,
                         testing::Combine(testing::Values(DeviceBytesCase{
                                              "mpi_pfs", mpi_pfs_tier_factory(), "mpi-io"}),
                                          device_bytes_sizes()),
                         device_bytes_name);

}  // namespace
}  // namespace kvstream::test
