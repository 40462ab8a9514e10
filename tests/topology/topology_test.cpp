#include "topology/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace kvstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Topology> synthetic(const std::string& text, const std::string& bound_to = "") {
  auto topology = Topology::from_synthetic(text, bound_to);
  EXPECT_TRUE(topology.has_value()) << topology.error().to_string();
  return topology ? std::move(*topology) : nullptr;
}

std::unique_ptr<Topology> from_file(const std::string& name, const std::string& bound_to) {
  std::ifstream file(std::string(KVSTREAM_TEST_TOPOLOGIES) + "/" + name);
  std::ostringstream xml;
  xml << file.rdbuf();
  auto topology = Topology::from_xml(xml.str(), bound_to);
  EXPECT_TRUE(topology.has_value()) << topology.error().to_string();
  return topology ? std::move(*topology) : nullptr;
}

// Written by hand onto a synthetic machine: two sockets, each with 4 cores, a verbs NIC with its
// network interface, and a GPU; a console's VGA adapter on the first.
std::unique_ptr<Topology> two_sockets(const std::string& bound_to = "") {
  return from_file("two_sockets_nic_gpu.xml", bound_to);
}

Placement place(const Topology& topology, std::uint32_t rank, std::uint32_t ranks) {
  const Result<Placement> placement = topology.place(rank, ranks);
  EXPECT_TRUE(placement.has_value());
  return placement.value_or(Placement{});
}

TEST(Topology, CountsWhatIsThere) {
  const auto topology = synthetic("numa:2 core:4 pu:2");
  ASSERT_NE(topology, nullptr);
  EXPECT_EQ(topology->count_numa_nodes(), 2U);
  EXPECT_EQ(topology->count_cores(), 8U);
  EXPECT_EQ(topology->count_cpus(), 16U);
}

TEST(Topology, GivesEachOfFourRanksHalfANumaNode) {
  const auto topology = synthetic("numa:2 core:4 pu:2");
  ASSERT_NE(topology, nullptr);
  EXPECT_THAT(place(*topology, 0, 4).cpus, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(place(*topology, 1, 4).cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(place(*topology, 2, 4).cpus, ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(place(*topology, 3, 4).cpus, ElementsAre(12, 13, 14, 15));
  EXPECT_EQ(place(*topology, 1, 4).numa_node, 0);
  EXPECT_EQ(place(*topology, 2, 4).numa_node, 1);
  EXPECT_EQ(place(*topology, 2, 4).cores, 2U);
  EXPECT_FALSE(place(*topology, 2, 4).shared_cpus);
}

TEST(Topology, NeverLetsARankStraddleTwoNumaNodes) {
  const auto topology = synthetic("numa:2 core:4 pu:1");
  ASSERT_NE(topology, nullptr);
  for (std::uint32_t ranks = 1; ranks <= 20; ++ranks) {
    std::vector<int> users(8, 0);
    std::map<int, int> ranks_of_node;
    std::vector<Placement> placements;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Placement& placement = placements.emplace_back(place(*topology, rank, ranks));
      ASSERT_FALSE(placement.cpus.empty());
      ++ranks_of_node[placement.numa_node];
      for (const std::uint32_t cpu : placement.cpus) {
        EXPECT_EQ(static_cast<int>(cpu / 4), placement.numa_node) << rank << " of " << ranks;
        ++users[cpu];
      }
    }
    for (const Placement& placement : placements) {
      EXPECT_EQ(placement.shared_cpus, ranks_of_node[placement.numa_node] > 4) << ranks << " ranks";
    }
    if (ranks < 2) continue;
    EXPECT_LE(std::abs(ranks_of_node[0] - ranks_of_node[1]), 1) << ranks << " ranks";
    for (int cpu = 0; cpu < 8; ++cpu) {
      const int sharers = ranks_of_node[cpu / 4];
      EXPECT_EQ(users[static_cast<std::size_t>(cpu)], sharers > 4 ? sharers : 1) << ranks;
    }
  }
}

TEST(Topology, LetsRanksThatOutnumberTheCoresUseAllOfTheirNode) {
  const auto topology = synthetic("numa:2 core:2 pu:1");
  ASSERT_NE(topology, nullptr);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(place(*topology, rank, 8).cpus, ElementsAre(0, 1)) << rank;
    EXPECT_THAT(place(*topology, rank + 4, 8).cpus, ElementsAre(2, 3)) << rank;
    EXPECT_TRUE(place(*topology, rank, 8).shared_cpus);
  }
}

TEST(Topology, GivesALoneRankOneWholeNumaNode) {
  const auto topology = synthetic("numa:2 core:4 pu:1");
  ASSERT_NE(topology, nullptr);
  EXPECT_THAT(place(*topology, 0, 1).cpus, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(place(*topology, 0, 1).numa_node, 0);
}

TEST(Topology, NamesNoNumaNodeWhereThereIsOnlyOne) {
  const auto topology = synthetic("core:2 pu:1");
  ASSERT_NE(topology, nullptr);
  EXPECT_EQ(place(*topology, 0, 1).numa_node, -1);
  EXPECT_THAT(place(*topology, 1, 2).cpus, ElementsAre(1));
}

TEST(Topology, KeepsTheBindingOfTheLauncher) {
  const auto topology = synthetic("numa:2 core:4 pu:1", "5-6");
  ASSERT_NE(topology, nullptr);
  EXPECT_EQ(topology->count_cores(), 2U);
  // Whatever the number of ranks: this binding is this rank's alone.
  const Placement placement = place(*topology, 3, 4);
  EXPECT_THAT(placement.cpus, ElementsAre(5, 6));
  EXPECT_EQ(placement.numa_node, 1);
  EXPECT_TRUE(placement.inherited);
}

TEST(Topology, DoesNotTakeTheWholeMachineForABinding) {
  const auto topology = synthetic("numa:2 core:4 pu:1", "0-7");
  ASSERT_NE(topology, nullptr);
  EXPECT_FALSE(place(*topology, 0, 2).inherited);
  EXPECT_THAT(place(*topology, 1, 2).cpus, ElementsAre(4, 5, 6, 7));
}

TEST(Topology, PicksTheNicAndTheGpuOfTheRanksOwnSocket) {
  const auto topology = two_sockets();
  ASSERT_NE(topology, nullptr);
  EXPECT_EQ(place(*topology, 0, 2).nic, "mlx5_0");
  EXPECT_EQ(place(*topology, 1, 2).nic, "mlx5_1");
  EXPECT_EQ(place(*topology, 0, 2).gpu, "0000:02:00.0");
  EXPECT_EQ(place(*topology, 1, 2).gpu, "0000:82:00.0");
  EXPECT_EQ(place(*topology, 3, 4).gpu, "0000:82:00.0");
}

TEST(Topology, UsesDevicesFarAwayWhenNoneIsNear) {
  const auto topology = two_sockets("4-7");
  ASSERT_NE(topology, nullptr);
  EXPECT_EQ(place(*topology, 0, 1).nic, "mlx5_1");
  const auto bare = synthetic("numa:2 core:2 pu:1");
  EXPECT_EQ(place(*bare, 0, 1).nic, "");
  EXPECT_EQ(place(*bare, 0, 1).gpu, "");
}

// `lstopo` wrote it on a virtual machine of 2 cpus.
TEST(Topology, ReadsARecordedVirtualMachine) {
  const auto topology = from_file("recorded_virtual_machine.xml", "");
  ASSERT_NE(topology, nullptr);
  EXPECT_EQ(topology->count_cpus(), 2U);
  EXPECT_EQ(place(*topology, 0, 1).numa_node, -1);
  EXPECT_EQ(place(*topology, 0, 1).nic, "eth0");
  EXPECT_EQ(place(*topology, 0, 1).gpu, "");
}

TEST(Topology, RefusesRanksAndTextsThatMakeNoSense) {
  const auto topology = synthetic("core:2 pu:1");
  EXPECT_EQ(topology->place(2, 2).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(topology->place(0, 0).error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(Topology::from_synthetic("no topology").has_value());
  EXPECT_FALSE(Topology::from_synthetic("core:2 pu:1", "two").has_value());
  EXPECT_FALSE(Topology::from_xml("<html/>").has_value());
}

TEST(Topology, DescribesItselfInOneLine) {
  const auto topology = two_sockets();
  ASSERT_NE(topology, nullptr);
  EXPECT_EQ(describe(place(*topology, 1, 2)),
            "NUMA node 1, cpus 4-7 (4 cores), NIC mlx5_1, GPU 0000:82:00.0");
  const auto small = synthetic("core:1 pu:1");
  EXPECT_EQ(describe(place(*small, 1, 2)),
            "one NUMA node, cpus 0 (1 core, shared with other ranks), no NIC, no GPU");
}

TEST(ThisMachine, IsReadAndAThreadCanBeBoundToItsPlace) {
  const auto topology = Topology::open();
  ASSERT_TRUE(topology.has_value()) << topology.error().to_string();
  const Result<Placement> placement = (*topology)->place(0, 1);
  ASSERT_TRUE(placement.has_value());
  ASSERT_FALSE(placement->cpus.empty());
  std::thread([&] {
    ASSERT_TRUE(bind_this_thread(*placement).is_ok());
    cpu_set_t now;
    CPU_ZERO(&now);
    ASSERT_EQ(::sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_EQ(static_cast<std::size_t>(CPU_COUNT(&now)), placement->cpus.size());
    for (const std::uint32_t cpu : placement->cpus) EXPECT_TRUE(CPU_ISSET(cpu, &now)) << cpu;
  }).join();
}

TEST(ThisMachine, RefusesToBindAThreadToACpuThatIsNotThere) {
  std::thread([] {
    Placement placement;
    placement.cpus = {100'000};
    EXPECT_EQ(bind_this_thread(placement).code(), Code::kUnavailable);
    EXPECT_TRUE(bind_this_thread(Placement{}).is_ok());
  }).join();
}

}  // namespace
}  // namespace kvstream
