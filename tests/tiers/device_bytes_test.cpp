#include "tiers/device_bytes.hpp"

#include "tiers/nvme_tier.hpp"
#include "tiers/plain_pfs_tier.hpp"

namespace kvstream::test {
namespace {

NvmeOptions nvme(IoEngine engine, bool allow_direct) {
  NvmeOptions options;
  options.engine = engine;
  options.allow_direct = allow_direct;
  return options;
}

PlainPfsOptions pfs(bool allow_direct) {
  PlainPfsOptions options;
  options.allow_direct = allow_direct;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Files, DeviceBytes,
    testing::Combine(
        testing::Values(
            DeviceBytesCase{"nvme", nvme_tier_factory(nvme(IoEngine::kAuto, true)), "O_DIRECT"},
            DeviceBytesCase{"nvme_buffered", nvme_tier_factory(nvme(IoEngine::kAuto, false)),
                            "buffered"},
            DeviceBytesCase{"nvme_threads", nvme_tier_factory(nvme(IoEngine::kThreads, true)),
                            "threads"},
            DeviceBytesCase{"pfs", plain_pfs_tier_factory(pfs(true)), "O_DIRECT"},
            DeviceBytesCase{"pfs_buffered", plain_pfs_tier_factory(pfs(false)), "buffered"}),
        device_bytes_sizes()),
    device_bytes_name);

}  // namespace
}  // namespace kvstream::test
