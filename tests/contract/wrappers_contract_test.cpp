// Each wrapper keeps the contract, around a tier that completes at once and around one that has
// threads, a wait_fd and contents that outlive it.
#include "contract/tier_contract.hpp"
#include "docs/examples/directory_tier.hpp"
#include "tiers/counting_tier.hpp"
#include "tiers/faulty_tier.hpp"
#include "tiers/host_tier.hpp"
#include "tiers/throttled_tier.hpp"

namespace kvstream::test {
namespace {

std::unique_ptr<Tier> counted(std::unique_ptr<Tier> tier, const TierSpec&) {
  return std::make_unique<CountingTier>(std::move(tier));
}

/// Faults that the contract allows: operations that take their time.
std::unique_ptr<Tier> delayed(std::unique_ptr<Tier> tier, const TierSpec&) {
  FaultPlan plan;
  plan.reads.delay = plan.writes.delay = 0.2;
  plan.reads.stall = 0.02;
  plan.delay_ns = 200 * kMicrosecond;
  plan.stall_ns = 2 * kMillisecond;
  return std::make_unique<FaultyTier>(std::move(tier), plan, SteadyClock::instance());
}

std::unique_ptr<Tier> throttled(std::unique_ptr<Tier> tier, const TierSpec& spec) {
  auto control =
      ThrottleControl::open(spec.path, {2'000'000'000, 1'000'000'000, 100 * kMicrosecond});
  if (!control) return nullptr;
  return std::make_unique<ThrottledTier>(std::move(tier), *control, SteadyClock::instance());
}

std::unique_ptr<Tier> all_of_them(std::unique_ptr<Tier> tier, const TierSpec& spec) {
  return counted(throttled(delayed(counted(std::move(tier), spec), spec), spec), spec);
}

std::vector<TierContractCase> around(const std::string& name, const TierFactory& make) {
  return {{.name = "counting_" + name, .make = make, .wrap = counted},
          {.name = "faulty_" + name, .make = make, .wrap = delayed},
          {.name = "throttled_" + name, .make = make, .wrap = throttled},
          {.name = "all_" + name, .make = make, .wrap = all_of_them}};
}

INSTANTIATE_TEST_SUITE_P(OverHost, TierContract,
                         testing::ValuesIn(around("host", host_tier_factory())),
                         TierContractCase::name_of);
INSTANTIATE_TEST_SUITE_P(OverDirectory, TierContract,
                         testing::ValuesIn(around("directory", directory_tier_factory())),
                         TierContractCase::name_of);

}  // namespace
}  // namespace kvstream::test
