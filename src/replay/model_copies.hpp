// Verifying, placing and staging as virtual time sees them.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "engine/copy_threads.hpp"

namespace kvstream {

struct CopiesModel {
  std::uint32_t threads = 1;
  double copy_bytes_per_s = 0;  ///< of one thread: checksum and copy in one pass; 0 = no time
  /// Between host memory and the device that computes, one way each; 0 = no time.
  double link_bytes_per_s = 0;
};

/// `threads` servers in the order of arrival; then the link. Every block is good. Owned by a
/// DrivenEngine; one thread.
class ModelCopies final : public Copies {
 public:
  ModelCopies(const CopiesModel& model, const Clock& clock);

  bool submit(const PlaceJob& job) override;
  std::size_t poll(std::span<PlaceDone> out) override;
  bool submit_stage(const StageJob& job) override;
  std::size_t poll_staged(std::span<StageDone> out) override;
  Nanos next_event() const override;
  double cpu_s() const override { return 0; }
  void close() override {}

 private:
  struct Job {
    Nanos end = 0;
    std::uint64_t sequence = 0, id = 0;
    bool operator>(const Job& other) const {
      return end != other.end ? end > other.end : sequence > other.sequence;
    }
  };
  using Jobs = std::priority_queue<Job, std::vector<Job>, std::greater<>>;
  Nanos end_of(std::uint64_t bytes, double& link_free_ns);
  template <class Done>
  std::size_t take(Jobs& jobs, std::span<Done> out, Done (*done)(std::uint64_t id));

  CopiesModel model_;
  const Clock& clock_;
  std::vector<double> thread_free_ns_;
  double link_in_free_ns_ = 0, link_out_free_ns_ = 0;
  Jobs placing_, staging_;
  std::uint64_t sequence_ = 0;
};

}  // namespace kvstream
