// The twin of a build with mpi_tiers/: ranks over MPI, pfs tiers over HDF5 and MPI-IO.
#include <unistd.h>

#include "launch/bootstrap.hpp"
#include "mpi_tiers/mpi_group.hpp"
#include "mpi_tiers/mpi_pfs_tier.hpp"
#include "mpi_tiers/mpi_session.hpp"

namespace kvstream {
namespace {

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(std::unique_ptr<MpiGroup> group) : group_(std::move(group)) {}
  Group& group() override { return *group_; }
  TierKinds kinds() const override {
    TierKinds kinds = tier_kinds();
    kinds["pfs"] = mpi_pfs_tier_factory();
    return kinds;
  }
  bool leave() override {
    group_->leave();
    return group_->departure() == MpiDeparture::kWithoutFinalize;
  }

 private:
  std::unique_ptr<MpiGroup> group_;
};

}  // namespace

Result<std::unique_ptr<Bootstrap>> open_bootstrap(const std::string& how, const std::string& node) {
  if (how != "auto" && how != "mpi") return open_plain_bootstrap(how, node);
  auto session = MpiSession::open();
  if (!session) return failure(session.error());
  MpiGroup::Options options;
  options.node = node;
  options.when_stuck = [] { ::_exit(1); };
  auto group = MpiGroup::open(std::move(*session), std::move(options));
  if (!group) return failure(group.error());
  return std::unique_ptr<Bootstrap>(std::make_unique<MpiBootstrap>(std::move(*group)));
}

std::string bootstrap_features() {
  return "ranks over MPI, pfs tiers over HDF5 and MPI-IO; no UCX, no GPU";
}

}  // namespace kvstream
