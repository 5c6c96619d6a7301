// A cluster: groups of alike nodes, what is inside a node, its NICs, the networks between them; held
// as a table of directed links and as a Boost.Graph topology over them. No routes are stored:
// route() derives them by one stated rule. Which software moves a group's bytes is models/transport.
// Read next: models/cluster_layout.hpp, models/network_cost.hpp.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/chip.hpp"

namespace motley {

enum class FabricKind : std::uint8_t { nvswitch, nvlink_mesh, xgmi_mesh, pcie, loopback };
enum class NicKind : std::uint8_t { infiniband, roce, ethernet };

struct InsideFabric {  // chip to chip inside a node
  FabricKind kind = FabricKind::nvswitch;
  double bandwidth = 0;  // bytes/s a chip and direction; a mesh divides it over the other chips
  double latency_s = 0;
  double reaches = 0;  // measured rate of one flow at this bandwidth; 0: the fabric's usual share
  double in_switch =
      0;  // bytes/s of each chip while the switch reduces what passes (NVLink SHARP); 0: it does not
  bool operator==(const InsideFabric&) const = default;
};

// The PCIe tree of a node: chips and NICs behind switches, in equal contiguous runs, switches at
// sockets. Each switch has one uplink, each pair of sockets one link; all traffic through them
// shares it.
struct Pcie {
  int generation = 5;
  int lanes = 16;          // of a chip
  int nic_lanes = 16;      // of a NIC
  int switches = 1;        // a node; 1: the root complex alone, no uplinks
  int uplink_lanes = 16;   // of a switch
  int sockets = 1;         // divides `switches`
  double socket_link = 0;  // bytes/s between two sockets, a direction; more than one socket only
  double reaches = 0;      // measured rate of one chip's link; 0: the usual share of its lanes
  bool operator==(const Pcie&) const = default;
};

struct Nic {
  NicKind kind = NicKind::infiniband;
  int count = 0;         // a node
  double bandwidth = 0;  // bytes/s each, each direction (written in bits: 200 Gb/s)
  double latency_s = 0;  // one way, NIC to NIC through one switch
  // By NIC: the chips of the node near it. Empty: NICs and chips side by side in contiguous runs.
  std::vector<std::vector<int>> near = {};
  double far = 1;      // share of its end's rate that a chip keeps on a NIC that is not near it
  double reaches = 0;  // measured rate of one flow over one NIC; 0: the transport's usual share
  bool operator==(const Nic&) const = default;
};

// The memory of a node, for what its chips offload, and the processor that steps optimizer state there.
struct Host {
  double memory = 0;            // bytes
  double memory_bandwidth = 0;  // bytes/s, of all sockets together
  double link = 0;  // bytes/s of each chip's own link to it, a direction; 0: through the `pcie` tree
  bool operator==(const Host&) const = default;
};

// What stands around the nodes. Nothing: not said, and not assumed.
struct Site {
  double pue = 1;  // power usage effectiveness: what the site draws over what its nodes draw
  std::optional<double> electricity;  // USD/kWh
  std::optional<double> carbon;       // grams of CO2 equivalent a kWh
  double node_watts = 0;  // of each node besides its chips: processors, memory, NICs, fans; 0: not counted
  bool operator==(const Site&) const = default;
};

struct NodeGroup {
  std::string name;
  int nodes = 0;
  Chip chip;
  int chips_per_node = 0;
  InsideFabric inside;
  std::vector<Nic> nics;
  std::optional<Pcie> pcie = {};  // nothing: chips reach NICs at the rate of the inside fabric
  std::optional<Host> host = {};  // nothing: not described, nothing can be offloaded
  std::optional<Site> site = {};  // nothing: the cluster's
  bool operator==(const NodeGroup&) const = default;
};

// Which NIC kind joins two groups. A group's own nodes talk over its first NIC kind. What is not
// listed cannot talk. With a bandwidth it is a link between two sites, one for all their traffic;
// without, the two groups stand on one network.
struct GroupLink {
  std::string from, to;
  NicKind over = NicKind::ethernet;
  double bandwidth = 0;  // bytes/s, a direction
  double latency_s = 0;  // one way
  double per_flow = 0;   // bytes/s that one flow reaches (a TCP window over a long way); 0: all of it
  // Chips of one cannot reach the memory of the other's: bytes go through both hosts' memory and TCP.
  bool staged = false;
  bool is_site_link() const { return bandwidth > 0; }
  bool operator==(const GroupLink&) const = default;
};

enum class NetworkShape : std::uint8_t { single, leaf_spine, rail_optimised, dragonfly };
enum class Routing : std::uint8_t { ecmp, adaptive };

// The switches between the NICs of one kind. Not listed: one switch that never blocks.
//   leaf_spine      all ports of a node at one leaf, every leaf at every spine
//   rail_optimised  port i of every node at leaf i of its block of nodes
//   dragonfly       routers in groups, all routers of a group joined, all groups joined by one link
// A leaf of leaf_spine is a router of dragonfly.
struct Network {
  NicKind over = NicKind::infiniband;
  std::vector<std::string> groups;  // empty: every group that has such NICs
  NetworkShape shape = NetworkShape::single;
  int nodes_per_leaf = 1;
  int spines = 1;
  double oversubscription = 1;  // what a leaf takes in over what it passes up
  double uplink = 0;            // bytes/s of each leaf to each spine; 0: follows from oversubscription
  Routing routing = Routing::ecmp;
  int routers_per_group = 1;
  double local = 0, global = 0;  // bytes/s of a dragonfly's links
  double latency_s = 0;          // of each link between two switches
  bool operator==(const Network&) const = default;
};

// How the communication library chooses what moves the bytes of a group: see models/carrier.hpp.
enum class TransportPolicy : std::uint8_t { by_group, holmes, sockets };

// What moves bytes between nodes. Nothing said: what joins the two ends.
struct Carrier {
  std::optional<NicKind> over;
  bool sockets = false;  // TCP, whatever the NICs can do
  bool operator==(const Carrier&) const = default;
};

enum class VertexKind : std::uint8_t { chip, inside, pcie_switch, socket, nic, network, host };
struct Vertex {
  VertexKind kind = VertexKind::chip;
  std::string name;  // "ib.3.chip5", "ib.3.nvswitch", "ib.3.pcie0", "ib.3.infiniband0", "infiniband"
  int chip = -1;     // global chip index when kind == chip
};
struct LinkProperties {
  int id = -1;           // 0..link_count-1, directed: there and back are two ids
  double bandwidth = 0;  // bytes/s
  double latency_s = 0;
  double efficiency = 1;  // share of the bandwidth that the traffic it is built for reaches
};
using Topology =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Vertex, LinkProperties>;

// The NICs of one kind in a node, as ports. A port is all the NICs near one set of chips: their
// flows are striped over them evenly, so that they act as one.
struct PortLayout {
  int first_link = 0;            // of the ports' links, from the node's first
  std::vector<int> of_chip;      // port of a chip
  std::vector<char> near;        // by chip: whether its port is near it
  std::vector<int> width;        // NICs in a port
  std::vector<int> pcie_switch;  // that a port is behind
  int count() const { return static_cast<int>(width.size()); }
};

// One network as built: see models/switches.hpp.
struct NetworkLayout {
  Network of;
  std::vector<int> first_node;  // by group: place of its first node; -1: not on this network
  int leaves = 1, rails = 1, ways = 1;
  int first_link = 0, exits = 0;         // ids; exits: from each leaf to the site's exit
  std::size_t first_leaf = 0, exit = 0;  // vertices; those of leaves follow each other
};

// Where a group's part of the topology begins, and how the links of one node are numbered: see
// models/cluster_layout.hpp.
struct GroupLayout {
  int first_chip = 0, first_node = 0, first_link = 0, links_per_node = 0;
  int links_a_chip = 0, mesh = 0, uplinks = 0, sockets = 0;  // offsets in a node
  int hosts = 0;                  // likewise: of each chip's own link to the host, where there is one
  std::vector<PortLayout> ports;  // by NIC kind, as NodeGroup::nics
  std::vector<int> network;       // the same: index into network_layout
};

struct Cluster {
  std::string name;
  std::vector<NodeGroup> groups;
  std::vector<GroupLink> links;
  std::vector<Network> networks;
  TransportPolicy transport = TransportPolicy::by_group;
  std::optional<Site> site;  // of the groups that have none of their own

  // Derived by build_topology().
  Topology topology;
  int link_count = 0;
  std::vector<LinkProperties> link_table;  // by link id
  std::vector<std::size_t> chip_vertex;    // by global chip index
  std::vector<int> chip_group;             // group of a chip
  std::vector<int> chip_node;              // global node index of a chip
  std::vector<GroupLayout> layout;         // by group
  std::vector<NetworkLayout> network_layout;
  std::vector<int> site_link_id;  // by link of `links`; -1: no link between sites

  int chip_count() const { return static_cast<int>(chip_vertex.size()); }
  const Chip& chip_of(int chip) const { return groups[static_cast<std::size_t>(chip_group[chip])].chip; }
  Site site_of(int group) const {
    const std::optional<Site>& own = groups[static_cast<std::size_t>(group)].site;
    return own ? *own : site.value_or(Site{});
  }
  // Two clusters are equal when what they were built from is.
  bool operator==(const Cluster& other) const {
    return name == other.name && groups == other.groups && links == other.links &&
           networks == other.networks && transport == other.transport && site == other.site;
  }
};

std::string_view name_of(FabricKind kind);
std::string_view name_of(NicKind kind);
std::string_view name_of(NetworkShape shape);
std::string_view name_of(Routing routing);
std::string_view name_of(TransportPolicy policy);

// Fills in the derived part. Chips are numbered group by group, node by node, so chips of a node
// are consecutive.
void build_topology(Cluster& cluster);

struct Route {
  std::vector<int> links;  // directed link ids, in order
  double latency_s = 0;    // sum
  double bandwidth = 0;    // smallest of the links
  double rate = 0;         // what one flow alone reaches: efficiencies and the chips' NIC affinity in
  bool inside_node = false;
  bool operator==(const Route&) const = default;
};

// Whether nodes of the two groups (or of one) can talk over that kind of NIC.
bool are_joined(const Cluster& cluster, int group, int other, NicKind kind);
// Which NIC kind carries traffic between nodes of two groups; nothing: they cannot talk.
std::optional<NicKind> joining_kind(const Cluster& cluster, int from_group, int to_group);

// The rule, printed by `motley show cluster`. Inside a node: over the inside fabric. Between nodes:
// out of the ports nearest the source, of the kind that joins the two groups, into the ports nearest
// the destination. From leaf to leaf: over the spine that a hash of the two ports chooses (ecmp), or
// over all spines at once (adaptive); from router to router of a dragonfly: the one minimal way;
// between sites: over the link that joins the two groups. Throws Refusal(infeasible, "unreachable")
// when no common NIC kind joins them.
Route route(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier = {});
// The source's NIC on that route, for two chips of unlike nodes. Throws as route() does.
const Nic& joining_nic(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier = {});
// Between a chip and its node's memory, at the chip's own socket. Throws Refusal(infeasible, "no-host") where the
// chip's group does not say what its hosts have.
Route host_route(const Cluster& cluster, int chip, bool to_host);
// Whether bytes between the two are staged through the memory of their hosts.
bool is_staged(const Cluster& cluster, int from_chip, int to_chip);

}  // namespace motley
