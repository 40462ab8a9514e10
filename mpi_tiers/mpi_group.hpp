// The ranks of a job over MPI.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi_tiers/mpi_session.hpp"
#include "ranks/group.hpp"

namespace kvstream {

/// A Group on communicators of its own. Owned by the program, used by one thread at a time.
///
/// Every operation is one exchange: all ranks give bytes and get everyone's. While all ranks come
/// in time it is a non-blocking collective, tested with growing sleeps (50 us .. 5 ms) so that it
/// starves no rank on the same core. When a rank is late, the first one whose time is up tells the
/// others directly, and from then on exchanges are plain messages between each two ranks: each
/// survivor then knows exactly who came, whichever rank is gone. Collectives are not used again,
/// since an abandoned one would match the late rank's next.
class MpiGroup final : public Group {
 public:
  struct Options {
    std::string node = "auto";  ///< a name, or "auto" for the host name
    Nanos open_timeout = 60 * kSecond;
    Nanos leave_timeout = 10 * kSecond;
    std::function<void()> when_stuck;  ///< see MpiSession::depart
  };
  /// The most bytes of one rank, and of all ranks together, in an exchange.
  static constexpr std::int64_t kBytesMax = 64 << 20;
  static constexpr std::int64_t kBytesAllMax = 1 << 30;

  /// Called by all ranks of MPI_COMM_WORLD; agrees on nodes and the job's word.
  static Result<std::unique_ptr<MpiGroup>> open(std::shared_ptr<MpiSession> session,
                                                Options options);
  ~MpiGroup() override;

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }
  const std::string& node() const override { return node_; }
  std::uint32_t local_rank() const override { return local_rank_; }
  std::uint32_t local_size() const override { return local_size_; }
  Result<std::vector<std::uint32_t>> barrier(Nanos timeout) override;
  Result<Gathered> all_gather(const std::string& mine, Nanos timeout) override;
  Result<std::string> broadcast(const std::string& from_rank0, Nanos timeout) override;
  const std::string& job() const override { return job_; }
  /// Everything that uses MPI (tiers, transports) must be closed before.
  void leave() override;

  /// A rank was late once: exchanges are messages between each two ranks.
  bool degraded() const { return degraded_; }
  /// How leave() left; with kWithoutFinalize the program must end by `_exit`.
  MpiDeparture departure() const { return session_->departure(); }

 private:
  struct Collective;
  struct Outgoing;
  struct Incoming;
  enum class Progress : std::uint8_t { kWaiting, kDone, kGivenUp };

  MpiGroup(std::shared_ptr<MpiSession> session, Options options);
  Status open_communicators();
  Status meet();
  Result<Gathered> exchange(const std::string& mine, Nanos timeout);
  Progress advance_collective(Collective& collective, Gathered& out);
  Status start_bytes(Collective& collective);
  /// The words of the direct path.
  void degrade();
  void send_to_all(std::uint64_t sequence, const std::string& bytes);
  void receive_all();
  bool all_here(std::uint64_t sequence, Nanos waited, Nanos timeout) const;
  Gathered take_inbox(std::uint64_t sequence, const std::string& mine);
  void reap_sends();

  std::shared_ptr<MpiSession> session_;
  Options options_;
  std::uint32_t rank_ = 0, size_ = 1;
  std::uint32_t local_rank_ = 0, local_size_ = 1;
  std::string node_, job_;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  MPI_Comm direct_ = MPI_COMM_NULL;

  std::uint64_t sequence_ = 0;  ///< of the exchange under way
  std::string previous_mine_;   ///< a rank may still wait for it when another degrades
  bool degraded_ = false;
  std::vector<bool> suspected_;  ///< did not come to the last exchange
  std::unique_ptr<Collective> abandoned_;
  std::deque<std::unique_ptr<Outgoing>> outgoing_;
  std::deque<std::unique_ptr<Incoming>> incoming_;
  std::map<std::uint64_t, std::vector<std::optional<std::string>>> inbox_;
};

}  // namespace kvstream
