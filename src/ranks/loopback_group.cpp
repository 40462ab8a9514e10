#include "ranks/loopback_group.hpp"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "ranks/job_token.hpp"

namespace kvstream {
namespace {

struct Round {
  std::vector<std::optional<std::string>> given;
  std::uint32_t readers = 0;
};

}  // namespace

struct LoopbackGroup::Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::string job = make_job_token();
  std::vector<std::string> nodes;
  std::vector<bool> left;
  std::map<std::uint64_t, Round> rounds;

  Round& round(std::uint64_t number) {
    Round& found = rounds[number];
    found.given.resize(nodes.size());
    return found;
  }
  // Nobody is still to come: all have given their part, or have left.
  bool complete(const Round& round) const {
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      if (!round.given[rank] && !left[rank]) return false;
    }
    return true;
  }
};

std::vector<std::unique_ptr<Group>> LoopbackGroup::make(std::uint32_t count,
                                                        const std::vector<std::string>& nodes) {
  auto board = std::make_shared<Board>();
  board->nodes = nodes;
  board->nodes.resize(count, "node0");
  board->left.resize(count, false);
  std::vector<std::unique_ptr<Group>> ends;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    ends.emplace_back(new LoopbackGroup(board, rank));
  }
  return ends;
}

LoopbackGroup::LoopbackGroup(std::shared_ptr<Board> board, std::uint32_t rank)
    : board_(std::move(board)), rank_(rank), local_size_(0) {
  for (std::uint32_t other = 0; other < board_->nodes.size(); ++other) {
    if (board_->nodes[other] != board_->nodes[rank]) continue;
    local_rank_ += other < rank ? 1 : 0;
    ++local_size_;
  }
}

LoopbackGroup::~LoopbackGroup() { leave(); }

std::uint32_t LoopbackGroup::size() const {
  return static_cast<std::uint32_t>(board_->nodes.size());
}
const std::string& LoopbackGroup::node() const { return board_->nodes[rank_]; }
const std::string& LoopbackGroup::job() const { return board_->job; }

Result<Gathered> LoopbackGroup::all_gather(const std::string& mine, Nanos timeout) {
  std::unique_lock lock(board_->mutex);
  const std::uint64_t number = round_++;
  board_->round(number).given[rank_] = mine;
  board_->changed.notify_all();
  board_->changed.wait_for(lock, std::chrono::nanoseconds(timeout),
                           [&] { return board_->complete(board_->round(number)); });
  Round& round = board_->round(number);
  Gathered gathered;
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    gathered.bytes.push_back(round.given[rank].value_or(""));
    if (!round.given[rank]) gathered.missing.push_back(rank);
  }
  if (++round.readers == size()) board_->rounds.erase(number);
  return gathered;
}

Result<std::vector<std::uint32_t>> LoopbackGroup::barrier(Nanos timeout) {
  Result<Gathered> gathered = all_gather("", timeout);
  if (!gathered) return failure(gathered.error());
  return std::move(gathered->missing);
}

Result<std::string> LoopbackGroup::broadcast(const std::string& from_rank0, Nanos timeout) {
  std::unique_lock lock(board_->mutex);
  const std::uint64_t number = round_++;
  Round& round = board_->round(number);
  if (rank_ == 0) round.given[0] = from_rank0;
  board_->changed.notify_all();
  board_->changed.wait_for(lock, std::chrono::nanoseconds(timeout),
                           [&] { return round.given[0].has_value() || board_->left[0]; });
  const std::optional<std::string> word = round.given[0];
  if (++round.readers == size()) board_->rounds.erase(number);
  if (!word) return failure(Code::kTimedOut, "rank 0 did not come to a broadcast; is it alive?");
  return *word;
}

void LoopbackGroup::leave() {
  const std::lock_guard lock(board_->mutex);
  board_->left[rank_] = true;
  board_->changed.notify_all();
}

}  // namespace kvstream
