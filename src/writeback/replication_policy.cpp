#include "writeback/replication_policy.hpp"

namespace kvstream {
namespace {

/// kNone, kOne and kAll differ only in what persistent tiers get.
class FixedReplication final : public ReplicationPolicy {
 public:
  explicit FixedReplication(Replication replication) : replication_(replication) {}

  WriteTargets targets(const NewBlock&, std::span<const TargetView> tiers) override {
    WriteTargets targets;
    if (replication_ == Replication::kNone) return targets;
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      if (!tiers[i].in_use) continue;
      const bool claimed = replication_ == Replication::kOne && tiers[i].persistent;
      (claimed ? targets.any : targets.all) |= std::uint64_t{1} << i;
    }
    return targets;
  }

 private:
  Replication replication_;
};

}  // namespace

std::unique_ptr<ReplicationPolicy> make_replication_policy(Replication replication) {
  return std::make_unique<FixedReplication>(replication);
}

}  // namespace kvstream
