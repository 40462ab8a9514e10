// What every tier and every wrapper must keep. A tier joins with a file of some 20 lines:
//
//   INSTANTIATE_TEST_SUITE_P(Mine, TierContract, testing::Values(TierContractCase{
//       .name = "mine", .make = mine_tier_factory()}), TierContractCase::name_of);
//
// and an executable that links kvstream_tier_contract.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "contract/tier_driver.hpp"
#include "kvstream/tier.hpp"

namespace kvstream::test {

/// Whose a persistent tier's blocks are after the tier was closed and opened again: its own, or
/// those of a writer that has ended (each process that opens a PFS is a new writer).
enum class AfterReopen : std::uint8_t { kOwn, kOthers };

/// One tier to be tested.
struct TierContractCase {
  std::string name;
  TierFactory make;  ///< a BlockingTier goes through the engine's adapter
  /// Puts wrappers around it; may be empty.
  std::function<std::unique_ptr<Tier>(std::unique_ptr<Tier>, const TierSpec&)> wrap = {};
  std::uint64_t cap_bytes = 16ULL << 20U;
  std::uint32_t block_bytes_max = 64U << 10U;
  AfterReopen after_reopen = AfterReopen::kOwn;
  std::uint32_t random_operations = 3000;
  std::uint32_t random_operations_full = 100'000;

  static std::string name_of(const testing::TestParamInfo<TierContractCase>& info) {
    return info.param.name;
  }
};
inline std::ostream& operator<<(std::ostream& out, const TierContractCase& value) {
  return out << value.name;
}

/// A fresh tier in a fresh directory, removed at the end.
class TierContract : public testing::TestWithParam<TierContractCase> {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Closes the tier and opens it again in the same directory.
  void reopen();
  void expect_closed_accounts() const;
  Tier& tier() { return *tier_; }
  const Tier& tier() const { return *tier_; }
  TierDriver& driver() { return *driver_; }
  std::uint32_t block_bytes() const { return GetParam().block_bytes_max; }

  /// KVSTREAM_TEST_SEED, else 1; printed.
  static std::uint64_t seed();
  static bool full();

 private:
  void open();

  std::string directory_;
  std::unique_ptr<Tier> tier_;
  std::unique_ptr<TierDriver> driver_;
};

}  // namespace kvstream::test
