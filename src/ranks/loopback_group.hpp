// The ranks of a job as threads of one process, for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ranks/group.hpp"

namespace kvstream {

/// One rank's end. Each end is used by one thread; the ends share a board that lives as long as the
/// last of them. Bounded by what the ranks gather: a round is forgotten when all have read it.
class LoopbackGroup final : public Group {
 public:
  /// `count` ends; `nodes` names the node of each rank (empty: all on "node0").
  static std::vector<std::unique_ptr<Group>> make(std::uint32_t count,
                                                  const std::vector<std::string>& nodes = {});
  ~LoopbackGroup() override;
  LoopbackGroup(const LoopbackGroup&) = delete;
  LoopbackGroup& operator=(const LoopbackGroup&) = delete;

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override;
  const std::string& node() const override;
  std::uint32_t local_rank() const override { return local_rank_; }
  std::uint32_t local_size() const override { return local_size_; }
  Result<std::vector<std::uint32_t>> barrier(Nanos timeout) override;
  Result<Gathered> all_gather(const std::string& mine, Nanos timeout) override;
  Result<std::string> broadcast(const std::string& from_rank0, Nanos timeout) override;
  const std::string& job() const override;
  void leave() override;

 private:
  struct Board;
  LoopbackGroup(std::shared_ptr<Board> board, std::uint32_t rank);

  std::shared_ptr<Board> board_;
  std::uint32_t rank_ = 0;
  std::uint32_t local_rank_ = 0, local_size_ = 1;
  std::uint64_t round_ = 0;
};

}  // namespace kvstream
