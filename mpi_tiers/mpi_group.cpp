#include "mpi_tiers/mpi_group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/logging.hpp"

namespace kvstream {
namespace {

constexpr int kDirectTag = 1;
/// Exchanges that a fast rank may be ahead of a late one before its messages are dropped.
constexpr std::uint64_t kAheadMax = 64;

Nanos now() { return SteadyClock::instance().now(); }

/// How long the others get to answer once somebody's time is up.
Nanos grace(Nanos timeout) { return std::clamp(timeout / 4, 50 * kMillisecond, 2 * kSecond); }

/// Sleeps 50 us, then longer and longer up to 5 ms.
class Backoff {
 public:
  void sleep() {
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_));
    pause_ = std::min(pause_ * 3 / 2, 5 * kMillisecond);
  }

 private:
  Nanos pause_ = 50 * kMicrosecond;
};

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "node";
  return name.data();
}

std::string random_word() {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) {
    value = static_cast<std::uint64_t>(now()) * 0x9E3779B97F4A7C15ULL ^
            static_cast<std::uint64_t>(getpid());
  }
  return fmt::format("{:016x}", value);
}

}  // namespace

/// Sizes of all ranks, then their bytes. What MPI may still write into lives here.
struct MpiGroup::Collective {
  std::string mine;
  std::int64_t my_size = 0;
  std::vector<std::int64_t> sizes;
  std::vector<int> counts, offsets;
  std::string all;
  bool started = false, bytes_started = false, failed = false;
  MPI_Request request = MPI_REQUEST_NULL;
};

struct MpiGroup::Outgoing {
  std::string bytes;
  std::vector<MPI_Request> requests;
};

struct MpiGroup::Incoming {
  int source = 0;
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

MpiGroup::MpiGroup(std::shared_ptr<MpiSession> session, Options options)
    : session_(std::move(session)), options_(std::move(options)) {}

Result<std::unique_ptr<MpiGroup>> MpiGroup::open(std::shared_ptr<MpiSession> session,
                                                 Options options) {
  std::unique_ptr<MpiGroup> group(new MpiGroup(std::move(session), std::move(options)));
  if (Status status = group->open_communicators(); !status.is_ok()) return failure(status);
  if (Status status = group->meet(); !status.is_ok()) return failure(status);
  return group;
}

MpiGroup::~MpiGroup() {
  // MPI may still read and write the buffers of what never completed.
  abandoned_.release();
  for (auto& outgoing : outgoing_) outgoing.release();
  for (auto& incoming : incoming_) incoming.release();
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || degraded_) return;
  const MpiSession::Call call(*session_);
  if (collectives_ != MPI_COMM_NULL) MPI_Comm_free(&collectives_);
  if (direct_ != MPI_COMM_NULL) MPI_Comm_free(&direct_);
}

Status MpiGroup::open_communicators() {
  const Nanos deadline = now() + options_.open_timeout;
  for (MPI_Comm* comm : {&collectives_, &direct_}) {
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    {
      const MpiSession::Call call(*session_);
      rc = MPI_Comm_idup(MPI_COMM_WORLD, comm, &request);
    }
    int done = 0;
    for (Backoff backoff; rc == MPI_SUCCESS && done == 0; backoff.sleep()) {
      if (now() > deadline) {
        return {Code::kTimedOut,
                fmt::format("failed to meet the other ranks within {} s (one did not start, or "
                            "is slow to)",
                            options_.open_timeout / kSecond)};
      }
      const MpiSession::Call call(*session_);
      rc = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (rc != MPI_SUCCESS) return mpi_status(rc, "duplicate the world communicator");
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  }
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(collectives_, &rank);
  MPI_Comm_size(collectives_, &size);
  rank_ = static_cast<std::uint32_t>(rank);
  size_ = static_cast<std::uint32_t>(size);
  suspected_.assign(size_, false);
  return Status::ok();
}

Status MpiGroup::meet() {
  node_ = options_.node.empty() || options_.node == "auto" ? host_name() : options_.node;
  auto nodes = all_gather(node_, options_.open_timeout);
  if (!nodes) return nodes.error();
  if (!nodes->missing.empty()) {
    return {Code::kTimedOut,
            fmt::format("failed to meet ranks {} within {} s", fmt::join(nodes->missing, ", "),
                        options_.open_timeout / kSecond)};
  }
  local_size_ = 0;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (nodes->bytes[rank] != node_) continue;
    if (rank < rank_) ++local_rank_;
    ++local_size_;
  }
  auto job = broadcast(rank_ == 0 ? random_word() : std::string(), options_.open_timeout);
  if (!job) return job.error();
  job_ = *job;
  return Status::ok();
}

Result<std::vector<std::uint32_t>> MpiGroup::barrier(Nanos timeout) {
  auto gathered = exchange({}, timeout);
  if (!gathered) return failure(gathered.error());
  return gathered->missing;
}

Result<Gathered> MpiGroup::all_gather(const std::string& mine, Nanos timeout) {
  return exchange(mine, timeout);
}

Result<std::string> MpiGroup::broadcast(const std::string& from_rank0, Nanos timeout) {
  auto gathered = exchange(rank_ == 0 ? from_rank0 : std::string(), timeout);
  if (!gathered) return failure(gathered.error());
  if (!gathered->missing.empty() && gathered->missing.front() == 0) {
    return failure(Code::kTimedOut,
                   fmt::format("failed to hear from rank 0 within {} ms", timeout / kMillisecond));
  }
  return std::move(gathered->bytes[0]);
}

void MpiGroup::leave() {
  auto missing = barrier(options_.leave_timeout);
  const bool complete = missing && missing->empty() && !degraded_;
  if (!complete && session_->departure() == MpiDeparture::kNotYet) {
    logger("mpi").warn(
        "left without MPI_Finalize, which could block ({})",
        missing && !missing->empty()
            ? fmt::format("ranks {} did not come to the end", fmt::join(*missing, ", "))
            : std::string("a rank was late before"));
  }
  session_->depart(complete ? MpiSession::Company::kComplete : MpiSession::Company::kRankMissing,
                   options_.leave_timeout, options_.when_stuck);
}

Result<Gathered> MpiGroup::exchange(const std::string& mine, Nanos timeout) {
  ++sequence_;
  const Nanos start = now();
  Nanos deadline = start + timeout;
  Gathered out;
  std::unique_ptr<Collective> collective;
  if (!degraded_) {
    collective = std::make_unique<Collective>();
    collective->mine = mine;
    collective->my_size = static_cast<std::int64_t>(mine.size());
    collective->sizes.assign(size_, 0);
    Progress progress = Progress::kWaiting;
    for (Backoff backoff; progress == Progress::kWaiting; backoff.sleep()) {
      progress = advance_collective(*collective, out);
      if (progress != Progress::kWaiting) break;
      receive_all();
      if (degraded_ || now() >= deadline) progress = Progress::kGivenUp;
    }
    if (progress == Progress::kDone) {
      previous_mine_ = mine;
      if (out.bytes.size() == size_) return out;
      return failure(Code::kInvalidArgument,
                     fmt::format("failed to gather the bytes of {} ranks (more than {} B of one "
                                 "or {} B of all)",
                                 size_, kBytesMax, kBytesAllMax));
    }
    if (!degraded_) degrade();
    deadline = std::max(deadline, now() + grace(timeout));
  }
  if (mine.size() > static_cast<std::size_t>(kBytesMax)) {
    return failure(Code::kInvalidArgument,
                   fmt::format("failed to send {} B to the other ranks (at most {} B)", mine.size(),
                               kBytesMax));
  }
  send_to_all(sequence_, mine);
  bool done = false;
  for (Backoff backoff; !done && now() < deadline; backoff.sleep()) {
    receive_all();
    reap_sends();
    done = all_here(sequence_, now() - start, timeout) ||
           (collective && advance_collective(*collective, out) == Progress::kDone);
  }
  if (collective) abandoned_ = std::move(collective);
  previous_mine_ = mine;
  if (out.bytes.size() == size_) {
    inbox_.erase(sequence_);
    return out;
  }
  return take_inbox(sequence_, mine);
}

MpiGroup::Progress MpiGroup::advance_collective(Collective& collective, Gathered& out) {
  if (collective.failed) return Progress::kGivenUp;
  const MpiSession::Call call(*session_);
  int done = 0;
  int rc = MPI_SUCCESS;
  if (!collective.started) {
    collective.started = true;
    rc = MPI_Iallgather(&collective.my_size, 1, MPI_INT64_T, collective.sizes.data(), 1,
                        MPI_INT64_T, collectives_, &collective.request);
  }
  if (rc == MPI_SUCCESS) rc = MPI_Test(&collective.request, &done, MPI_STATUS_IGNORE);
  collective.failed = rc != MPI_SUCCESS;
  if (collective.failed) return Progress::kGivenUp;
  if (done == 0) return Progress::kWaiting;
  if (!collective.bytes_started) {
    std::int64_t sum = 0;
    std::int64_t largest = 0;
    for (const std::int64_t size : collective.sizes) {
      sum += size;
      largest = std::max(largest, size);
    }
    // All ranks see the same sizes, so all of them stop here alike.
    if (largest > kBytesMax || sum > kBytesAllMax) return Progress::kDone;
    if (sum > 0) return start_bytes(collective).is_ok() ? Progress::kWaiting : Progress::kGivenUp;
    collective.counts.assign(size_, 0);
    collective.offsets.assign(size_, 0);
  }
  out.bytes.clear();
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    out.bytes.emplace_back(collective.all, static_cast<std::size_t>(collective.offsets[rank]),
                           static_cast<std::size_t>(collective.counts[rank]));
  }
  return Progress::kDone;
}

Status MpiGroup::start_bytes(Collective& collective) {
  std::int64_t sum = 0;
  for (const std::int64_t size : collective.sizes) {
    collective.counts.push_back(static_cast<int>(size));
    collective.offsets.push_back(static_cast<int>(sum));
    sum += size;
  }
  collective.all.resize(static_cast<std::size_t>(sum));
  collective.bytes_started = true;
  return mpi_status(
      MPI_Iallgatherv(collective.mine.data(), static_cast<int>(collective.my_size), MPI_BYTE,
                      collective.all.data(), collective.counts.data(), collective.offsets.data(),
                      MPI_BYTE, collectives_, &collective.request),
      "start to gather bytes");
}

void MpiGroup::degrade() {
  degraded_ = true;
  logger("mpi").warn("a rank was late at exchange {}; ranks now speak in pairs", sequence_);
  // A rank that is still in the exchange before this one gets its answer too.
  if (sequence_ > 1) send_to_all(sequence_ - 1, previous_mine_);
}

void MpiGroup::send_to_all(std::uint64_t sequence, const std::string& bytes) {
  // Messages to a rank that never takes them stay; the bound drops the newest.
  if (outgoing_.size() >= kAheadMax) return;
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->bytes.resize(sizeof sequence);
  std::memcpy(outgoing->bytes.data(), &sequence, sizeof sequence);
  outgoing->bytes += bytes;
  const MpiSession::Call call(*session_);
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = MPI_Isend(outgoing->bytes.data(), static_cast<int>(outgoing->bytes.size()),
                             MPI_BYTE, static_cast<int>(rank), kDirectTag, direct_, &request);
    if (rc == MPI_SUCCESS) outgoing->requests.push_back(request);
  }
  outgoing_.push_back(std::move(outgoing));
}

void MpiGroup::receive_all() {
  const MpiSession::Call call(*session_);
  // Bounded: each rank has at most a few messages on the way.
  for (std::uint64_t i = 0; i < size_ * kAheadMax; ++i) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    const int rc = MPI_Improbe(MPI_ANY_SOURCE, kDirectTag, direct_, &found, &message, &status);
    if (rc != MPI_SUCCESS || found == 0) break;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    auto incoming = std::make_unique<Incoming>();
    incoming->source = status.MPI_SOURCE;
    incoming->bytes.resize(static_cast<std::size_t>(std::max(count, 0)));
    if (MPI_Imrecv(incoming->bytes.data(), count, MPI_BYTE, &message, &incoming->request) ==
        MPI_SUCCESS) {
      incoming_.push_back(std::move(incoming));
    }
  }
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    int done = 0;
    const int rc = MPI_Test(&(*it)->request, &done, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && done == 0) {
      ++it;
      continue;
    }
    const std::unique_ptr<Incoming> incoming = std::move(*it);
    it = incoming_.erase(it);
    std::uint64_t sequence = 0;
    if (rc != MPI_SUCCESS || incoming->bytes.size() < sizeof sequence) continue;
    std::memcpy(&sequence, incoming->bytes.data(), sizeof sequence);
    if (!degraded_) degrade();
    if (sequence < sequence_ || sequence > sequence_ + kAheadMax) continue;
    auto& row = inbox_.try_emplace(sequence, size_).first->second;
    row[static_cast<std::size_t>(incoming->source)] = incoming->bytes.substr(sizeof sequence);
  }
}

bool MpiGroup::all_here(std::uint64_t sequence, Nanos waited, Nanos timeout) const {
  const auto row = inbox_.find(sequence);
  const bool patience_over = waited >= std::min(grace(timeout), 250 * kMillisecond);
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || (row != inbox_.end() && row->second[rank])) continue;
    if (!suspected_[rank] || !patience_over) return false;
  }
  return true;
}

Gathered MpiGroup::take_inbox(std::uint64_t sequence, const std::string& mine) {
  Gathered out;
  out.bytes.resize(size_);
  auto row = inbox_.try_emplace(sequence, size_).first;
  row->second[rank_] = mine;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    suspected_[rank] = !row->second[rank].has_value();
    if (suspected_[rank]) {
      out.missing.push_back(rank);
    } else {
      out.bytes[rank] = std::move(*row->second[rank]);
    }
  }
  inbox_.erase(inbox_.begin(), std::next(row));
  return out;
}

void MpiGroup::reap_sends() {
  const MpiSession::Call call(*session_);
  for (auto it = outgoing_.begin(); it != outgoing_.end();) {
    int done = 0;
    auto& requests = (*it)->requests;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    it = done != 0 ? outgoing_.erase(it) : std::next(it);
  }
}

}  // namespace kvstream
