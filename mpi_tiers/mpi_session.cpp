#include "mpi_tiers/mpi_session.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "core/logging.hpp"

namespace kvstream {
namespace {

std::mutex& call_mutex() {
  static std::mutex mutex;
  return mutex;
}

void set_unless_set(const char* name, const char* value) {
  if (std::getenv(name) == nullptr) setenv(name, value, /*replace=*/0);
}

bool is_open_mpi_4() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return std::string_view(text.data()).rfind("Open MPI v4.", 0) == 0;
}

/// Calls `when_stuck` unless it is destroyed within the timeout.
class Watch {
 public:
  Watch(Nanos timeout, const std::function<void()>& when_stuck) {
    if (!when_stuck) return;
    thread_ = std::thread([this, timeout, &when_stuck] {
      std::unique_lock lock(mutex_);
      if (!ended_changed_.wait_for(lock, std::chrono::nanoseconds(timeout), [&] { return ended_; }))
        when_stuck();
    });
  }
  ~Watch() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    ended_changed_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace

Status check_launch(const EnvLookup& env, std::optional<int> world_size) {
  if (world_size.value_or(1) != 1 || env("OMPI_COMM_WORLD_SIZE") != nullptr) return Status::ok();
  // Inside a step srun says how many tasks the step has; a batch shell runs one process alone.
  const char* tasks = env("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr) return Status::ok();
  const long count = std::strtol(tasks, nullptr, 10);
  if (count <= 1) return Status::ok();
  if (!world_size &&
      (env("PMIX_RANK") != nullptr || env("PMI_RANK") != nullptr || env("PMI_FD") != nullptr)) {
    return Status::ok();
  }
  return {Code::kUnavailable,
          fmt::format("failed to join the ranks of this srun ({} tasks, but MPI sees each alone): "
                      "launch with `srun --mpi=pmix`, or with mpirun inside the allocation",
                      count)};
}

Status mpi_status(int mpi_code, const std::string& what) {
  if (mpi_code == MPI_SUCCESS) return Status::ok();
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int error_class = MPI_ERR_OTHER;
  MPI_Error_string(mpi_code, text.data(), &length);
  MPI_Error_class(mpi_code, &error_class);
  Code code = Code::kIoError;
  if (error_class == MPI_ERR_NO_SUCH_FILE) code = Code::kNotFound;
  if (error_class == MPI_ERR_NO_SPACE || error_class == MPI_ERR_QUOTA) code = Code::kNoSpace;
  return {code, fmt::format("failed to {} ({})", what,
                            std::string_view(text.data(), static_cast<std::size_t>(length)))};
}

Result<std::shared_ptr<MpiSession>> MpiSession::open() {
  // ROMIO, because OMPIO of Open MPI 4 hangs and loses data (fixed later, still shipped); no HDF5
  // locks, because many parallel file systems have none.
  if (is_open_mpi_4()) set_unless_set("OMPI_MCA_io", "romio321");
  set_unless_set("HDF5_USE_FILE_LOCKING", "FALSE");
  const EnvLookup env = [](const char* name) -> const char* { return std::getenv(name); };

  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) return failure(Code::kClosed, "failed to enter MPI (it was left already)");
  int level = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    if (Status launch = check_launch(env, std::nullopt); !launch.is_ok()) return failure(launch);
    const int rc = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    if (rc != MPI_SUCCESS) {
      return failure(Code::kUnavailable, fmt::format("failed to enter MPI (code {})", rc));
    }
  }
  std::shared_ptr<MpiSession> session(
      new MpiSession(level, initialized != 0 ? MpiDeparture::kNotOurs : MpiDeparture::kNotYet));
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (Status launch = check_launch(env, size); !launch.is_ok()) {
    session->depart(Company::kComplete, kSecond, {});
    return failure(launch);
  }
  if (level == MPI_THREAD_SINGLE) {
    const Code code = Code::kUnavailable;
    return failure(code,
                   "failed to enter MPI with threads (it granted SINGLE): initialise it by "
                   "MPI_Init_thread with at least MPI_THREAD_SERIALIZED, or use an MPI built so");
  }
  if (!session->concurrent_calls()) {
    logger("mpi").warn("MPI granted thread level {} instead of MULTIPLE; its calls take turns{}",
                       session->thread_level_name(),
                       level == MPI_THREAD_FUNNELED ? ", and the pfs tier will be refused" : "");
  }
  return session;
}

const char* MpiSession::thread_level_name() const {
  switch (thread_level_) {
    case MPI_THREAD_SINGLE:
      return "SINGLE";
    case MPI_THREAD_FUNNELED:
      return "FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "SERIALIZED";
    default:
      return "MULTIPLE";
  }
}

bool MpiSession::concurrent_calls() const { return thread_level_ == MPI_THREAD_MULTIPLE; }

MpiSession::Call::Call(const MpiSession& session) {
  if (!session.concurrent_calls()) lock_ = std::unique_lock(call_mutex());
}

MpiDeparture MpiSession::depart(Company company, Nanos timeout,
                                const std::function<void()>& when_stuck) {
  if (departure_ != MpiDeparture::kNotYet) return departure_;
  if (company == Company::kRankMissing) {
    departure_ = MpiDeparture::kWithoutFinalize;
    return departure_;
  }
  const Watch watch(timeout, when_stuck);
  MPI_Finalize();
  departure_ = MpiDeparture::kFinalized;
  return departure_;
}

}  // namespace kvstream
