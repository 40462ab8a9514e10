#include "topology/topology.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

namespace kvstream {
namespace {

constexpr unsigned kVendorNvidia = 0x10de;
constexpr unsigned kVendorAmd = 0x1002;
constexpr unsigned kClassDisplay = 0x03;
constexpr unsigned kClassAccelerator = 0x12;
constexpr unsigned kClassVga = 0x0300;

// A hwloc bitmap with an owner.
class Bitmap {
 public:
  Bitmap() : bits_(hwloc_bitmap_alloc()) {}
  explicit Bitmap(hwloc_const_bitmap_t from) : bits_(hwloc_bitmap_dup(from)) {}
  Bitmap(Bitmap&& other) noexcept : bits_(std::exchange(other.bits_, nullptr)) {}
  Bitmap& operator=(Bitmap&& other) noexcept {
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Bitmap() { hwloc_bitmap_free(bits_); }
  hwloc_bitmap_t get() const { return bits_; }

 private:
  hwloc_bitmap_t bits_;
};

struct Core {
  std::vector<std::uint32_t> cpus;
  std::size_t node = 0;  ///< index into Impl::nodes
};

struct NumaNode {
  int os_index = -1;
  Bitmap cpus;
  std::vector<std::size_t> cores;  ///< indices into Impl::cores
};

struct NearDevice {
  std::string name;
  Bitmap cpus;  ///< of the part of the machine that it hangs on
  bool fast = false;
};

std::vector<std::uint32_t> list_of(hwloc_const_bitmap_t bits) {
  std::vector<std::uint32_t> list;
  for (int i = hwloc_bitmap_first(bits); i >= 0; i = hwloc_bitmap_next(bits, i)) {
    list.push_back(static_cast<std::uint32_t>(i));
  }
  return list;
}

bool is_gpu(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  const unsigned base = pci.class_id >> 8U;
  if (base == kClassAccelerator) return true;
  // A plain VGA adapter of another make is a server's console.
  if (base != kClassDisplay) return false;
  return pci.vendor_id == kVendorNvidia ||
         (pci.vendor_id == kVendorAmd && pci.class_id != kClassVga);
}

}  // namespace

struct Topology::Impl {
  std::vector<NumaNode> nodes;  ///< those with usable cpus
  std::vector<Core> cores;
  std::vector<NearDevice> nics, gpus;
  std::uint32_t cpus = 0;
  bool one_node_machine = true;
  bool inherited = false;

  Result<std::unique_ptr<Topology>> static load(hwloc_topology_t topology,
                                                hwloc_const_bitmap_t bound_to);
  void read_cores(hwloc_topology_t topology, hwloc_const_bitmap_t usable);
  void read_devices(hwloc_topology_t topology);

  std::size_t node_of_rank(std::uint32_t local_rank, std::uint32_t local_ranks) const;
  std::string pick(const std::vector<NearDevice>& devices, const NumaNode& node,
                   std::size_t turn) const;
  bool has_device(const NumaNode& node) const;
  Placement placement_of(std::size_t node, std::span<const std::size_t> mine,
                         std::size_t turn) const;
};

namespace {

struct TopologyCloser {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, TopologyCloser>;

Result<TopologyHandle> make_handle() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return failure(Code::kUnavailable, "failed to start hwloc; placement is left to the kernel");
  }
  TopologyHandle handle(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // The first start whole GPU runtimes or look for a display, only to name what PCI names already;
  // the last leaks at each load (Debian's 2.9), and sysfs shows the same devices.
  for (const char* component : {"opencl", "gl", "cuda", "nvml", "rsmi", "levelzero", "pci"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  return handle;
}

Status load_handle(const TopologyHandle& handle, const std::string& what) {
  if (hwloc_topology_load(handle.get()) == 0) return Status::ok();
  return {Code::kUnavailable,
          fmt::format("failed to read the topology of {} ({})", what, std::strerror(errno))};
}

Result<Bitmap> bitmap_of(const std::string& list) {
  Bitmap bits;
  if (!list.empty() && hwloc_bitmap_list_sscanf(bits.get(), list.c_str()) != 0) {
    return failure(Code::kInvalidArgument,
                   fmt::format("\"{}\" is no list of cpus; write it like 0-3,8", list));
  }
  return bits;
}

}  // namespace

void Topology::Impl::read_cores(hwloc_topology_t topology, hwloc_const_bitmap_t usable) {
  one_node_machine = hwloc_bitmap_weight(hwloc_topology_get_complete_nodeset(topology)) <= 1;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    Bitmap here;
    hwloc_bitmap_and(here.get(), node->cpuset, usable);
    // Memory without cpus of its own (HBM, CXL) is nobody's place to run.
    const bool same_as_before = std::any_of(nodes.begin(), nodes.end(), [&](const NumaNode& n) {
      return hwloc_bitmap_intersects(n.cpus.get(), here.get()) != 0;
    });
    if (hwloc_bitmap_iszero(here.get()) || same_as_before) continue;
    nodes.push_back({static_cast<int>(node->os_index), std::move(here), {}});
  }
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    Bitmap left(nodes[index].cpus.get());
    while (!hwloc_bitmap_iszero(left.get())) {
      const auto cpu = static_cast<unsigned>(hwloc_bitmap_first(left.get()));
      hwloc_obj_t thread = hwloc_get_pu_obj_by_os_index(topology, cpu);
      hwloc_obj_t core = thread == nullptr
                             ? nullptr
                             : hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, thread);
      Bitmap siblings;
      if (core != nullptr) hwloc_bitmap_and(siblings.get(), core->cpuset, left.get());
      // A virtual machine may show no cores: then each thread is one.
      hwloc_bitmap_set(siblings.get(), cpu);
      hwloc_bitmap_andnot(left.get(), left.get(), siblings.get());
      nodes[index].cores.push_back(cores.size());
      cores.push_back({list_of(siblings.get()), index});
      cpus += static_cast<std::uint32_t>(cores.back().cpus.size());
    }
  }
}

void Topology::Impl::read_devices(hwloc_topology_t topology) {
  for (hwloc_obj_t device = nullptr;
       (device = hwloc_get_next_osdev(topology, device)) != nullptr;) {
    const auto type = device->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
    nics.push_back({device->name == nullptr ? "" : device->name, Bitmap(place->cpuset),
                    type == HWLOC_OBJ_OSDEV_OPENFABRICS});
  }
  for (hwloc_obj_t device = nullptr;
       (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    if (!is_gpu(pci)) continue;
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
    gpus.push_back(
        {fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func),
         Bitmap(place->cpuset), true});
  }
  // An InfiniBand port shows as a verbs device and as a network interface: the first is ours.
  const auto by_speed = [](const NearDevice& nic) { return nic.fast; };
  if (std::any_of(nics.begin(), nics.end(), by_speed)) {
    std::erase_if(nics, [&](const NearDevice& nic) { return !by_speed(nic); });
  }
}

Result<std::unique_ptr<Topology>> Topology::Impl::load(hwloc_topology_t topology,
                                                       hwloc_const_bitmap_t bound_to) {
  auto impl = std::make_unique<Impl>();
  Bitmap usable(hwloc_topology_get_allowed_cpuset(topology));
  if (!hwloc_bitmap_iszero(bound_to) && hwloc_bitmap_intersects(usable.get(), bound_to)) {
    impl->inherited = hwloc_bitmap_isincluded(usable.get(), bound_to) == 0;
    hwloc_bitmap_and(usable.get(), usable.get(), bound_to);
  }
  impl->read_cores(topology, usable.get());
  impl->read_devices(topology);
  if (impl->cores.empty()) {
    return failure(Code::kUnavailable, "the topology shows no cpu that this process may use");
  }
  return std::unique_ptr<Topology>(new Topology(std::move(impl)));
}

Result<std::unique_ptr<Topology>> Topology::open() {
  Result<TopologyHandle> handle = make_handle();
  if (!handle) return failure(handle.error());
  if (Status loaded = load_handle(*handle, "this machine"); !loaded.is_ok()) {
    return failure(std::move(loaded));
  }
  Bitmap bound_to;
  // What cannot be asked for binds nothing.
  (void)hwloc_get_cpubind(handle->get(), bound_to.get(), HWLOC_CPUBIND_PROCESS);
  return Impl::load(handle->get(), bound_to.get());
}

Result<std::unique_ptr<Topology>> Topology::from_synthetic(const std::string& description,
                                                           const std::string& bound_to) {
  Result<TopologyHandle> handle = make_handle();
  if (!handle) return failure(handle.error());
  const Result<Bitmap> bound = bitmap_of(bound_to);
  if (!bound) return failure(bound.error());
  if (hwloc_topology_set_synthetic(handle->get(), description.c_str()) != 0) {
    return failure(Code::kInvalidArgument,
                   fmt::format("\"{}\" is no synthetic topology of hwloc", description));
  }
  if (Status loaded = load_handle(*handle, description); !loaded.is_ok()) {
    return failure(std::move(loaded));
  }
  return Impl::load(handle->get(), bound->get());
}

Result<std::unique_ptr<Topology>> Topology::from_xml(const std::string& xml,
                                                     const std::string& bound_to) {
  Result<TopologyHandle> handle = make_handle();
  if (!handle) return failure(handle.error());
  const Result<Bitmap> bound = bitmap_of(bound_to);
  if (!bound) return failure(bound.error());
  if (hwloc_topology_set_xmlbuffer(handle->get(), xml.c_str(), static_cast<int>(xml.size() + 1)) !=
      0) {
    return failure(Code::kInvalidArgument, "the text is no topology that lstopo has written");
  }
  if (Status loaded = load_handle(*handle, "an XML text"); !loaded.is_ok()) {
    return failure(std::move(loaded));
  }
  return Impl::load(handle->get(), bound->get());
}

Topology::Topology(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Topology::~Topology() = default;

bool Topology::Impl::has_device(const NumaNode& node) const {
  const auto near = [&](const NearDevice& device) {
    return hwloc_bitmap_intersects(device.cpus.get(), node.cpus.get()) != 0;
  };
  return std::any_of(nics.begin(), nics.end(), near) || std::any_of(gpus.begin(), gpus.end(), near);
}

std::size_t Topology::Impl::node_of_rank(std::uint32_t local_rank,
                                         std::uint32_t local_ranks) const {
  const std::size_t count = cores.size();
  if (local_ranks < nodes.size()) {
    const std::size_t first = cores[local_rank * count / local_ranks].node;
    const std::size_t last = cores[((local_rank + 1) * count - 1) / local_ranks].node;
    for (std::size_t node = first; node <= last; ++node) {
      // A straddled node belongs to the rank that has its first core.
      if (node != first && has_device(nodes[node]) && !has_device(nodes[first])) return node;
    }
    return first;
  }
  return cores[(2 * std::size_t{local_rank} + 1) * count / (2 * std::size_t{local_ranks})].node;
}

// Devices of the node in turn; where it has none, those of the machine.
std::string Topology::Impl::pick(const std::vector<NearDevice>& devices, const NumaNode& node,
                                 std::size_t turn) const {
  std::vector<const NearDevice*> near;
  for (const NearDevice& device : devices) {
    if (hwloc_bitmap_intersects(device.cpus.get(), node.cpus.get()) != 0) near.push_back(&device);
  }
  if (!near.empty()) return near[turn % near.size()]->name;
  return devices.empty() ? std::string() : devices[turn % devices.size()].name;
}

Placement Topology::Impl::placement_of(std::size_t node, std::span<const std::size_t> mine,
                                       std::size_t turn) const {
  Placement placement;
  placement.numa_node = one_node_machine ? -1 : nodes[node].os_index;
  for (const std::size_t core : mine) {
    placement.cpus.insert(placement.cpus.end(), cores[core].cpus.begin(), cores[core].cpus.end());
  }
  std::sort(placement.cpus.begin(), placement.cpus.end());
  placement.cores = static_cast<std::uint32_t>(mine.size());
  placement.nic = pick(nics, nodes[node], turn);
  placement.gpu = pick(gpus, nodes[node], turn);
  return placement;
}

Result<Placement> Topology::place(std::uint32_t local_rank, std::uint32_t local_ranks) const {
  if (local_rank >= local_ranks) {
    return failure(Code::kInvalidArgument,
                   fmt::format("local rank {} of {} does not exist", local_rank, local_ranks));
  }
  // A binding that the launcher made is this rank's alone: nothing is left to share out.
  if (impl_->inherited) {
    std::vector<std::size_t> all(impl_->cores.size());
    std::iota(all.begin(), all.end(), 0);
    Placement placement = impl_->placement_of(impl_->node_of_rank(0, 1), all, local_rank);
    placement.inherited = true;
    return placement;
  }
  const std::size_t node = impl_->node_of_rank(local_rank, local_ranks);
  std::size_t before = 0, sharers = 0;
  for (std::uint32_t other = 0; other < local_ranks; ++other) {
    if (impl_->node_of_rank(other, local_ranks) != node) continue;
    before += other < local_rank ? 1 : 0;
    ++sharers;
  }
  const std::vector<std::size_t>& cores = impl_->nodes[node].cores;
  // More ranks than cores: nobody is nailed to one core while another is idle.
  const bool shared = sharers > cores.size();
  const std::size_t first = shared ? 0 : before * cores.size() / sharers;
  const std::size_t end = shared ? cores.size() : (before + 1) * cores.size() / sharers;
  Placement placement =
      impl_->placement_of(node, std::span(cores).subspan(first, end - first), before);
  placement.shared_cpus = shared;
  return placement;
}

std::uint32_t Topology::count_numa_nodes() const {
  return static_cast<std::uint32_t>(impl_->nodes.size());
}
std::uint32_t Topology::count_cores() const {
  return static_cast<std::uint32_t>(impl_->cores.size());
}
std::uint32_t Topology::count_cpus() const { return impl_->cpus; }

}  // namespace kvstream
