// A cluster: groups of equal nodes, the inside of a node, its NICs, and the networks between nodes. It is a table of
// directed links and a Boost.Graph topology over them. No routes are stored: route() derives them by one stated rule.
// models/cost/carrier.hpp says which software moves a group's bytes. Read next: models/cluster/cluster_layout.hpp,
// models/cost/network_cost.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/base/shared_table.hpp"
#include "models/base/words.hpp"
#include "models/cluster/chip.hpp"
#include "models/cluster/variation.hpp"

namespace motley {

// Chips of a cluster and of a node, at most. The largest cluster that was announced has 200,000 in one place (xAI
// Colossus, 2025); one of a million takes about 4 GB here.
inline constexpr IntegerRange kChips{1, 1 << 20}, kChipsOfNode{1, 1024};
// Chips of a published measurement, at most: many are read at once, and nobody measured as many.
inline constexpr IntegerRange kPublishedChips{1, 1 << 18};

enum class FabricKind : std::uint8_t { nvswitch, nvlink_mesh, xgmi_mesh, pcie, loopback };
template <>
inline constexpr auto kWords<FabricKind> = words("nvswitch", "nvlink_mesh", "xgmi_mesh", "pcie", "loopback");

enum class NicKind : std::uint8_t { infiniband, roce, ethernet };
template <>
inline constexpr auto kWords<NicKind> = words("infiniband", "roce", "ethernet");

struct InsideFabric {  // fabric between the chips of a node
  FabricKind kind = FabricKind::nvswitch;
  double bandwidth = 0;  // bytes/s of each chip in each direction; a mesh divides it over the other chips
  double latency_s = 0;
  double reaches = 0;  // measured rate of one flow at this bandwidth; 0: the fabric's usual share
  // Bytes/s of each chip while the switch reduces passing data (NVLink SHARP). 0: the switch does not reduce.
  double in_switch = 0;
  bool operator==(const InsideFabric&) const = default;
};

// The PCIe tree of a node. Chips and NICs stand behind switches, and switches at sockets, in equal contiguous runs.
// Each switch has one uplink, and each pair of sockets one link, which all traffic through it shares.
struct Pcie {
  int generation = 5;
  int lanes = 16;          // lanes of each chip
  int nic_lanes = 16;      // lanes of each NIC
  int switches = 1;        // switches in a node; 1: only the root complex, without uplinks
  int uplink_lanes = 16;   // lanes of each switch's uplink
  int sockets = 1;         // sockets in a node; a divisor of `switches`
  double socket_link = 0;  // bytes/s between two sockets in each direction; 0: one socket
  double reaches = 0;      // measured rate of one chip's link; 0: the usual share of its lanes
  bool operator==(const Pcie&) const = default;
};

struct Nic {
  NicKind kind = NicKind::infiniband;
  int count = 0;         // NICs in a node
  double bandwidth = 0;  // bytes/s of each NIC in each direction (written in bits: 200 Gb/s)
  double latency_s = 0;  // seconds one way, from NIC to NIC through one switch
  // The chips of the node that are near each NIC. Empty: NICs and chips lie side by side in contiguous runs.
  std::vector<std::vector<int>> near = {};
  double far = 1;      // share of its end's rate that a chip keeps on a NIC that is not near it
  double reaches = 0;  // measured rate of one flow over one NIC; 0: the transport's usual share
  int streams = 0;     // sockets that carry bytes over one NIC at a time; 0: the usual number
  int processors = 0;  // processors that serve the sockets of one NIC; 0: one for each
  bool operator==(const Nic&) const = default;
};

// The memory of a node, which holds what its chips offload, and the processor that steps the optimizer there.
struct Host {
  double memory = 0;            // bytes of memory
  double memory_bandwidth = 0;  // bytes/s of all sockets together
  double link = 0;              // bytes/s of each chip's own link to the host in each direction; 0: PCIe tree
  std::string measured = {};    // where and when its speeds were measured; empty: they were not
  bool operator==(const Host&) const = default;
};

// The surroundings of the nodes. A figure that was not given has no value; none is assumed.
struct Site {
  double pue = 1;                     // power usage effectiveness: power of the site over power of its nodes
  std::optional<double> electricity;  // USD/kWh
  std::optional<double> carbon;       // grams of CO2 equivalent for each kWh
  double node_watts = 0;  // watts of a node without its chips: processors, memory, NICs, fans; 0: not counted
  bool operator==(const Site&) const = default;
};

// What a reader remarked on a value, for people. Values that differ in remarks alone are equal.
struct Remarks {
  std::vector<std::string> texts;
  bool has_usual_nodes = false;  // whether a group takes its nodes from the usual ones of its chip
  bool operator==(const Remarks&) const { return true; }
};

struct NodeGroup {
  std::string name;
  int nodes = 0;
  Chip chip;
  int chips_per_node = 0;
  InsideFabric inside;
  std::vector<Nic> nics;
  std::optional<Pcie> pcie = {};  // nothing: chips reach NICs at the rate of the inside fabric
  std::optional<Host> host = {};  // nothing: the chips cannot offload
  std::optional<Site> site = {};  // nothing: the group stands at the cluster's site
  Remarks remarks = {};
  bool operator==(const NodeGroup&) const = default;
};

// The NIC kind that joins two groups. The nodes of one group use its first NIC kind; groups that no link joins cannot
// communicate. With a bandwidth this is one link between two sites, for all their traffic. Without a bandwidth the two
// groups stand on one network.
struct GroupLink {
  std::string from, to;
  NicKind over = NicKind::ethernet;
  double bandwidth = 0;  // bytes/s in each direction; 0: no link between sites
  double latency_s = 0;  // seconds one way
  double per_flow = 0;   // bytes/s that one flow reaches (a TCP window over a long way); 0: the bandwidth
  // True: chips cannot reach the memory of the other group's chips. Bytes go through both hosts' memory and TCP.
  bool staged = false;
  bool is_site_link() const { return bandwidth > 0; }
  bool operator==(const GroupLink&) const = default;
};

enum class NetworkShape : std::uint8_t { single, leaf_spine, rail_optimised, dragonfly };
template <>
inline constexpr auto kWords<NetworkShape> = words("single", "leaf_spine", "rail_optimised", "dragonfly");

enum class Routing : std::uint8_t { ecmp, adaptive };
template <>
inline constexpr auto kWords<Routing> = words("ecmp", "adaptive");

// The switches between the NICs of one kind. Without a listed network there is one switch that never blocks.
//   leaf_spine      all ports of a node are at one leaf, and every leaf is joined to every spine
//   rail_optimised  port i of every node is at leaf i of its block of nodes
//   dragonfly       routers stand in groups; every two routers of a group are joined, and every two groups by one link
// Below, "leaf" also means a router of a dragonfly.
struct Network {
  NicKind over = NicKind::infiniband;
  std::vector<std::string> groups;  // empty: every group that has such NICs
  NetworkShape shape = NetworkShape::single;
  int nodes_per_leaf = 1;
  int spines = 1;
  double oversubscription = 1;  // bandwidth into a leaf over bandwidth up from it
  double uplink = 0;            // bytes/s from each leaf to each spine; 0: follows from oversubscription
  Routing routing = Routing::ecmp;
  int routers_per_group = 1;
  double local = 0, global = 0;  // bytes/s of a dragonfly's links in a group, and between two groups
  double latency_s = 0;          // seconds of each link between two switches
  bool operator==(const Network&) const = default;
};

// How the communication library chooses the carrier of a group's bytes: see models/cost/carrier.hpp.
enum class TransportPolicy : std::uint8_t { by_group, holmes, sockets };
template <>
inline constexpr auto kWords<TransportPolicy> = words("by_group", "holmes", "sockets");

// What carries bytes between nodes.
struct Carrier {
  std::optional<NicKind> over;  // nothing: the kind that joins the two ends
  bool sockets = false;         // true: TCP, whatever the NICs can do
  bool operator==(const Carrier&) const = default;
};

struct LinkProperties {
  int id = -1;           // 0 to link_count-1, a different id in each direction; -1: not numbered yet
  double bandwidth = 0;  // bytes/s
  double latency_s = 0;
  double efficiency = 1;  // share of the bandwidth that the link's intended traffic reaches
};

class Topology;

// The NICs of one kind in a node, as ports. A port is all the NICs near one set of chips: flows are striped over them
// evenly, so that they act as one.
struct PortLayout {
  int first_link = 0;             // id of the ports' first link, counted from the node's first
  std::vector<int> port_of_chip;  // by chip in the node: its port
  std::vector<bool> near;         // by chip in the node: whether the chip is near its port
  std::vector<int> width;         // by port: number of its NICs
  std::vector<int> pcie_switch;   // by port: the PCIe switch behind which it is
  int count() const { return static_cast<int>(width.size()); }
};

// Flows that choose their spines as others do, their models: see sim/fold/repeated_draw.hpp.
struct FlowModels {
  struct Leaves {
    int from = 0, to = 0;
  };
  // By the leaves of a flow (from * NetworkLayout::leaves + to): the leaves of its model, which joins the ports at the
  // same places there.
  std::unordered_map<std::int64_t, Leaves> between;
  // By leaf: the leaf from which the models of all other flows go, as far as these do.
  std::vector<int> others;
};

// One network as built: see models/cluster/switches.hpp.
struct NetworkLayout {
  Network network;
  std::vector<int> first_node;  // by group: place of its first node; -1: the group is not on this network
  int leaves = 1;
  int rails = 1;               // largest number of ports of a node on this network
  int ways = 1;                // links up from each leaf: one for each spine, or one for all spines
  int first_link = 0;          // id of the first link between switches
  int exits = 0;               // id of the first link from a leaf to the site's exit
  std::size_t first_leaf = 0;  // vertex of the first leaf; those of the other leaves follow
  std::size_t exit = 0;        // vertex of the site's exit; of the first leaf if the network needs no exit
  int draw = 0;                // which of the equally likely draws of spines: it is hashed with the ports
  std::shared_ptr<const FlowModels> models = {};  // null: every flow is hashed by its own ports
};

// Start of a group's part of the topology, and numbers of the links of one node: see
// models/cluster/cluster_layout.hpp.
struct GroupLayout {
  int first_chip = 0, first_node = 0, first_link = 0, links_per_node = 0;
  int links_a_chip = 0;
  // Id of the first link of each sort, counted from the node's first link: in the mesh, from a PCIe switch, between
  // two sockets, from a chip to its host.
  int mesh = 0, uplinks = 0, sockets = 0, hosts = 0;
  std::vector<PortLayout> ports;  // by index in NodeGroup::nics
  std::vector<int> network;       // by index in NodeGroup::nics: index in Cluster::network_layout
};

struct Cluster {
  std::string name;
  std::vector<NodeGroup> groups;
  std::vector<GroupLink> links;
  std::vector<Network> networks;
  TransportPolicy transport = TransportPolicy::by_group;
  std::string links_measured_on;  // the machine whose links these are, as calibrate names it; empty: not told
  std::optional<Site> site;       // site of the groups that have no site of their own
  std::vector<Slow> slow;         // chips and nodes that have a speed of their own
  std::optional<Variation> variation;  // of what is called alike; nothing: the usual one of the software

  // build_topology() derives all members below.
  std::shared_ptr<const Topology> topology;  // shared by copies of the cluster; models/cluster/topology.hpp
  int link_count = 0;
  SharedTable<LinkProperties> link_table;  // by link id
  std::vector<std::size_t> chip_vertex;    // by chip (its global index): its vertex
  std::vector<int> chip_group;             // by chip: its group
  std::vector<int> chip_node;              // by chip: its global node index
  std::vector<double> chip_speed;          // by chip: its speed, as `slow` says; empty: every one is 1
  std::vector<GroupLayout> layout;         // by group
  std::vector<NetworkLayout> network_layout;
  std::vector<int>
      site_link_id;  // by index in `links`: id of the link that leads away from `from`; -1: not a site link

  int chip_count() const { return static_cast<int>(chip_vertex.size()); }
  const Chip& chip_of(int chip) const { return groups[static_cast<std::size_t>(chip_group[chip])].chip; }
  double speed_of(int chip) const {
    return chip_speed.empty() ? 1 : chip_speed[static_cast<std::size_t>(chip)];
  }
  Site site_of(int group) const {
    const std::optional<Site>& own = groups[static_cast<std::size_t>(group)].site;
    return own ? *own : site.value_or(Site{});
  }
  // Two clusters are equal when they were built from equal descriptions.
  bool operator==(const Cluster& other) const {
    return name == other.name && groups == other.groups && links == other.links &&
           networks == other.networks && transport == other.transport &&
           links_measured_on == other.links_measured_on && site == other.site && slow == other.slow &&
           variation == other.variation;
  }
};

// Fills in the derived members. Chips are numbered group by group and node by node, so that the chips of a node are
// consecutive.
void build_topology(Cluster& cluster);

struct Route {
  std::vector<int> links;  // directed link ids, in order
  double latency_s = 0;    // sum over the links
  double bandwidth = 0;    // bytes/s; the smallest of the links
  double rate = 0;         // bytes/s that one flow alone reaches, with efficiencies and NIC affinity
  bool inside_node = false;
  bool operator==(const Route&) const = default;
};

// Whether nodes of two groups, or of one group, can communicate over that kind of NIC.
bool are_joined(const Cluster& cluster, int group, int other, NicKind kind);
// The kind of NIC that both groups have and whose slower end is fastest; nothing: they share none.
std::optional<NicKind> fastest_shared_kind(const NodeGroup& a, const NodeGroup& b);
// The NIC kind that carries traffic between nodes of two groups. Nothing: the nodes cannot communicate.
std::optional<NicKind> joining_kind(const Cluster& cluster, int from_group, int to_group);

// Derives a route by this rule, which `motley show cluster` prints. Inside a node: over the inside fabric. Between
// nodes: out of the port nearest to the source, of the kind that joins the two groups, into the port nearest to the
// destination. From leaf to leaf: over the spine that a hash of the two ports chooses (ecmp), or over all spines at
// once (adaptive). From router to router of a dragonfly: over the one minimal path. Between sites: over the link that
// joins the two groups. Throws Refusal(infeasible, "unreachable") when no common NIC kind joins them.
Route route(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier = {});
// The source's NIC on the route between two chips of different nodes. Throws as route() does.
const Nic& joining_nic(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier = {});
// The route between a chip and its node's memory at the chip's own socket. Throws Refusal(infeasible, "no-host") if
// the chip's group describes no host.
Route host_route(const Cluster& cluster, int chip, bool to_host);
// Whether bytes between the two chips are staged through the memory of their hosts.
bool is_staged(const Cluster& cluster, int from_chip, int to_chip);

std::string print(const Cluster& cluster);  // inline YAML, which read_cluster() reads back
Cluster parse_cluster(const std::string& text);
// Reads a cluster. Files of chips that it names are searched in `folder` first.
Cluster read_cluster(const Yaml& node, const std::string& default_name, const std::string& folder);
// `name` is a shipped name or a path, searched in `folder` first.
Cluster find_cluster(const std::string& name, const std::string& folder, const Location& asked_from);
Cluster load_cluster(const std::string& path_or_name);  // find_cluster() in the working directory

}  // namespace motley
