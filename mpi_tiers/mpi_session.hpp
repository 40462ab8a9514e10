// Entering and leaving MPI: thread level, launch mistakes, and never hanging at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// How MPI was left.
enum class MpiDeparture : std::uint8_t {
  kNotYet,
  kFinalized,        ///< MPI_Finalize returned
  kNotOurs,          ///< somebody else called MPI_Init, and will call MPI_Finalize
  kWithoutFinalize,  ///< a rank is missing, so that MPI_Finalize could block: leave by `_exit`
};

/// This process in MPI. One a process, kept by a shared_ptr in whoever calls MPI (group, pfs tier).
/// open() and depart() are called by the main thread; the rest by any.
class MpiSession final {
 public:
  /// Calls MPI_Init_thread, or joins what the host program has initialised. Before that, unless the
  /// user has set them: OMPI_MCA_io=romio321 and HDF5_USE_FILE_LOCKING=FALSE.
  static Result<std::shared_ptr<MpiSession>> open();
  /// Leaves nothing: a process that skipped depart() must end by `_exit`, or MPI complains.
  ~MpiSession() = default;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// MPI_THREAD_SINGLE .. MPI_THREAD_MULTIPLE as MPI granted it.
  int thread_level() const { return thread_level_; }
  const char* thread_level_name() const;
  /// Several threads may be inside MPI at once.
  bool concurrent_calls() const;

  /// Held around each MPI call; locks only where MPI granted less than MULTIPLE.
  class Call {
   public:
    explicit Call(const MpiSession& session);

   private:
    std::unique_lock<std::mutex> lock_;
  };

  enum class Company : std::uint8_t { kComplete, kRankMissing };
  /// The end. Finalizes when all ranks have come to it; with a rank missing it does not, because
  /// MPI_Finalize blocks when rank 0 is gone. `when_stuck` is called by another thread when
  /// MPI_Finalize has not returned after `timeout` (our programs `_exit` there).
  MpiDeparture depart(Company company, Nanos timeout, const std::function<void()>& when_stuck);
  MpiDeparture departure() const { return departure_; }

 private:
  MpiSession(int thread_level, MpiDeparture departure)
      : thread_level_(thread_level), departure_(departure) {}

  int thread_level_;
  MpiDeparture departure_;
};

using EnvLookup = std::function<const char*(const char*)>;

/// Refuses a launch that would give N worlds of one rank each. `world_size` is not known before
/// MPI_Init, where Open MPI may abort the process instead of answering.
Status check_launch(const EnvLookup& env, std::optional<int> world_size);

/// The one translation from MPI's codes: "failed to <what> (<MPI's text>)".
Status mpi_status(int mpi_code, const std::string& what);

}  // namespace kvstream
