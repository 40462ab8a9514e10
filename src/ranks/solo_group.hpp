// A job of one rank.
#pragma once

#include "ranks/group.hpp"

namespace kvstream {

/// Owned by the program; one thread. Never waits.
class SoloGroup final : public Group {
 public:
  /// `node` "auto" is the host name.
  explicit SoloGroup(const std::string& node = "auto");

  std::uint32_t rank() const override { return 0; }
  std::uint32_t size() const override { return 1; }
  const std::string& node() const override { return node_; }
  std::uint32_t local_rank() const override { return 0; }
  std::uint32_t local_size() const override { return 1; }
  Result<std::vector<std::uint32_t>> barrier(Nanos timeout) override;
  Result<Gathered> all_gather(const std::string& mine, Nanos timeout) override;
  Result<std::string> broadcast(const std::string& from_rank0, Nanos timeout) override;
  const std::string& job() const override { return job_; }
  void leave() override {}

 private:
  std::string node_;
  std::string job_;
};

/// `setting` as it is, or the host name when it is "auto" or empty.
std::string node_name(const std::string& setting);

}  // namespace kvstream
