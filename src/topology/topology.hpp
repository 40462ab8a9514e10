// Where this rank should run: NUMA node, cores, NIC and GPU near it, by hwloc.
#pragma once

#include <sched.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvstream/status.hpp"

namespace kvstream {

/// What was chosen for one rank of a node. Indices are the operating system's.
struct Placement {
  int numa_node = -1;               ///< -1 = the machine has one node, or it is not known
  std::vector<std::uint32_t> cpus;  ///< hardware threads this rank should use, ascending
  std::uint32_t cores = 0;          ///< cores behind them
  bool shared_cpus = false;         ///< more ranks than cores: all of the node's, shared
  bool inherited = false;           ///< the launcher had bound this process: kept as it was
  std::string nic;                  ///< "mlx5_0" or "eth0"; empty = none found
  std::string gpu;                  ///< PCI bus id; empty = none found
};

/// A snapshot of the machine within the cpus that this process may use. A launcher that has bound
/// this process to fewer of them has decided already: place() then keeps all of these. Immutable,
/// any thread.
class Topology {
 public:
  /// This machine.
  static Result<std::unique_ptr<Topology>> open();
  /// A machine that is not here, for tests: hwloc's synthetic form, e.g. "numa:2 core:4 pu:2".
  /// `bound_to` is the launcher's binding, e.g. "4-7"; empty = none.
  static Result<std::unique_ptr<Topology>> from_synthetic(const std::string& description,
                                                          const std::string& bound_to = "");
  /// The text of a machine that was recorded with `lstopo FILE.xml`; I/O devices included.
  static Result<std::unique_ptr<Topology>> from_xml(const std::string& xml,
                                                    const std::string& bound_to = "");
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  /// Every rank gets one NUMA node. Ranks fill the nodes in blocks, by their cores, and share a
  /// node's cores (all of them where there are fewer cores than ranks), NICs and GPUs evenly; a
  /// rank that has several nodes to itself takes one with a NIC or GPU. kInvalidArgument when
  /// local_rank >= local_ranks.
  Result<Placement> place(std::uint32_t local_rank, std::uint32_t local_ranks) const;
  std::uint32_t count_numa_nodes() const;
  std::uint32_t count_cores() const;
  std::uint32_t count_cpus() const;

 private:
  struct Impl;
  explicit Topology(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// "NUMA node 0, cpus 0-3 (4 cores), NIC mlx5_0, GPU 0000:3b:00.0": the line that is logged once.
std::string describe(const Placement& placement);

/// Lets the calling thread run on the placement's cpus only; an empty list changes nothing.
Status bind_this_thread(const Placement& placement);

/// Binds the calling thread for as long as it lives, so that threads made and memory touched
/// meanwhile are where the placement says; then gives the thread its cpus back.
class ScopedBinding {
 public:
  explicit ScopedBinding(const Placement& placement);
  ~ScopedBinding();
  ScopedBinding(const ScopedBinding&) = delete;
  ScopedBinding& operator=(const ScopedBinding&) = delete;

 private:
  cpu_set_t before_{};
  bool bound_ = false;
};

}  // namespace kvstream
