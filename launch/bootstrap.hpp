// How this process finds the other ranks of its job; bootstrap_mpi.cpp and bootstrap_solo.cpp are
// twins of which a build has one.
#pragma once

#include <memory>
#include <string>

#include "client/tier_kinds.hpp"
#include "ranks/group.hpp"

namespace kvstream {

/// The job that this process is part of, and the kinds of tiers that it can make. Owned by the
/// program; its main thread. Everything that uses the kinds must be closed before leave().
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual Group& group() = 0;
  virtual TierKinds kinds() const = 0;
  /// The ranks part. True when the program must end by `_exit` (a rank is missing).
  virtual bool leave() = 0;
};

/// `how` is "auto" (MPI when it was built in, else one rank), "mpi", "solo" or "file:DIR".
Result<std::unique_ptr<Bootstrap>> open_bootstrap(const std::string& how, const std::string& node);

/// One or two lines for --version: what this build can do.
std::string bootstrap_features();

/// Rank of this process before any bootstrap, from what launchers set; 0 when there is none.
std::uint32_t launcher_rank();

/// Of both twins: "solo" and "file:DIR"; null for other words.
Result<std::unique_ptr<Bootstrap>> open_plain_bootstrap(const std::string& how,
                                                        const std::string& node);

}  // namespace kvstream
