#include "ranks/solo_group.hpp"

#include <unistd.h>

#include <array>

#include "ranks/job_token.hpp"

namespace kvstream {

std::string node_name(const std::string& setting) {
  if (!setting.empty() && setting != "auto") return setting;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "node0";
  return name.data();
}

SoloGroup::SoloGroup(const std::string& node) : node_(node_name(node)), job_(make_job_token()) {}

Result<std::vector<std::uint32_t>> SoloGroup::barrier(Nanos /*timeout*/) {
  return std::vector<std::uint32_t>{};
}

Result<Gathered> SoloGroup::all_gather(const std::string& mine, Nanos /*timeout*/) {
  return Gathered{{mine}, {}};
}

Result<std::string> SoloGroup::broadcast(const std::string& from_rank0, Nanos /*timeout*/) {
  return from_rank0;
}

}  // namespace kvstream
