// The nvme tier as the system allows it here, and as it is where io_uring or O_DIRECT is refused.
#include "contract/tier_contract.hpp"
#include "tiers/nvme_tier.hpp"

namespace kvstream::test {
namespace {

TierFactory nvme(IoEngine engine, bool allow_direct) {
  NvmeOptions options;
  options.engine = engine;
  options.allow_direct = allow_direct;
  return nvme_tier_factory(options);
}

INSTANTIATE_TEST_SUITE_P(
    Nvme, TierContract,
    testing::Values(TierContractCase{.name = "best", .make = nvme_tier_factory()},
                    TierContractCase{.name = "buffered", .make = nvme(IoEngine::kAuto, false)},
                    TierContractCase{.name = "threads", .make = nvme(IoEngine::kThreads, true)},
                    TierContractCase{.name = "buffered_threads",
                                     .make = nvme(IoEngine::kThreads, false)}),
    TierContractCase::name_of);

}  // namespace
}  // namespace kvstream::test
