// The twin of a build without mpi_tiers/.
#include "launch/bootstrap.hpp"

namespace kvstream {

Result<std::unique_ptr<Bootstrap>> open_bootstrap(const std::string& how, const std::string& node) {
  if (how == "mpi") {
    return failure(Code::kUnavailable,
                   "this kvstream was built without MPI: use --bootstrap file:DIR or solo, or "
                   "configure with -DKVSTREAM_WITH_MPI=ON");
  }
  return open_plain_bootstrap(how == "auto" ? "solo" : how, node);
}

std::string bootstrap_features() {
  return "built without MPI, HDF5 and UCX: one rank (or ranks over --bootstrap file:DIR), pfs "
         "tiers "
         "in the plain slot format";
}

}  // namespace kvstream
