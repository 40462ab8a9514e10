#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "topology/topology.hpp"

namespace kvstream {
namespace {

// "0-3,8": neighbours joined.
std::string ranges_of(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::string describe(const Placement& placement) {
  const std::string node =
      placement.numa_node < 0 ? "one NUMA node" : fmt::format("NUMA node {}", placement.numa_node);
  const char* note = "";
  if (placement.inherited) note = ", as the launcher bound them";
  if (placement.shared_cpus) note = ", shared with other ranks";
  return fmt::format("{}, cpus {} ({} core{}{}), {}, {}", node, ranges_of(placement.cpus),
                     placement.cores, placement.cores == 1 ? "" : "s", note,
                     placement.nic.empty() ? "no NIC" : "NIC " + placement.nic,
                     placement.gpu.empty() ? "no GPU" : "GPU " + placement.gpu);
}

Status bind_this_thread(const Placement& placement) {
  if (placement.cpus.empty()) return Status::ok();
  const std::size_t count = placement.cpus.back() + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> cpus(CPU_ALLOC(count),
                                                              [](cpu_set_t* s) { CPU_FREE(s); });
  const std::size_t size_bytes = CPU_ALLOC_SIZE(count);
  if (!cpus) return {Code::kNoSpace, "failed to allocate a set of cpus"};
  CPU_ZERO_S(size_bytes, cpus.get());
  for (const std::uint32_t cpu : placement.cpus) CPU_SET_S(cpu, size_bytes, cpus.get());
  const int error = ::pthread_setaffinity_np(::pthread_self(), size_bytes, cpus.get());
  if (error == 0) return Status::ok();
  return {Code::kUnavailable, fmt::format("failed to bind a thread to cpus {} ({}); the kernel "
                                          "places it",
                                          ranges_of(placement.cpus), std::strerror(error))};
}

ScopedBinding::ScopedBinding(const Placement& placement) {
  if (placement.cpus.empty() ||
      ::pthread_getaffinity_np(::pthread_self(), sizeof before_, &before_) != 0) {
    return;
  }
  bound_ = bind_this_thread(placement).is_ok();
}

ScopedBinding::~ScopedBinding() {
  if (bound_) ::pthread_setaffinity_np(::pthread_self(), sizeof before_, &before_);
}

}  // namespace kvstream
