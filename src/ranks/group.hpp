// How the ranks of a job speak to each other outside the data path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// What gather returned: one entry a rank, empty where the rank is missing.
struct Gathered {
  std::vector<std::string> bytes;
  std::vector<std::uint32_t> missing;
};

/// The ranks of a job. One thread at a time; calls are made in the same order by all ranks.
/// Solo, files and loopback here (solo_group.hpp, file_group.hpp, loopback_group.hpp); MPI in
/// mpi_tiers/. Waiting sleeps, it never spins.
class Group {
 public:
  virtual ~Group() = default;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;
  /// The node's name: a setting, or the host name.
  virtual const std::string& node() const = 0;
  virtual std::uint32_t local_rank() const = 0;
  virtual std::uint32_t local_size() const = 0;
  /// Ranks that did not come in time; empty = all were there.
  virtual Result<std::vector<std::uint32_t>> barrier(Nanos timeout) = 0;
  /// Everyone's bytes to everyone.
  virtual Result<Gathered> all_gather(const std::string& mine, Nanos timeout) = 0;
  /// Rank 0's bytes to everyone.
  virtual Result<std::string> broadcast(const std::string& from_rank0, Nanos timeout) = 0;
  /// One word that is the same on all ranks and differs between jobs.
  virtual const std::string& job() const = 0;
  /// Leaves the job in order; after it nothing else may be called.
  virtual void leave() = 0;
};

}  // namespace kvstream
