#include "writeback/replication_policy.hpp"

#include <gtest/gtest.h>

namespace kvstream {
namespace {

// host, nvme, pfs; the last may be out of use
const TargetView kAll[] = {{true, false}, {true, true}, {true, true}};
const TargetView kNoPfs[] = {{true, false}, {true, true}, {false, true}};

TEST(ReplicationPolicy, NoneWritesNowhere) {
  const auto targets = make_replication_policy(Replication::kNone)->targets({}, kAll);
  EXPECT_EQ(targets.all | targets.any, 0U);
}

TEST(ReplicationPolicy, OneLetsPersistentTiersClaimAndFillsMemoryInAnyCase) {
  const auto targets = make_replication_policy(Replication::kOne)->targets({}, kAll);
  EXPECT_EQ(targets.all, 0b001U);
  EXPECT_EQ(targets.any, 0b110U);
}

TEST(ReplicationPolicy, AllWritesToEveryTierInUse) {
  const auto policy = make_replication_policy(Replication::kAll);
  EXPECT_EQ(policy->targets({}, kAll).all, 0b111U);
  EXPECT_EQ(policy->targets({}, kNoPfs).all, 0b011U);
  EXPECT_EQ(policy->targets({}, kAll).any, 0U);
}

}  // namespace
}  // namespace kvstream
