// A cluster: groups of alike nodes, what is inside a node, its NICs, the switches between them;
// held as a Boost.Graph topology of directed links. No routes are stored: route() derives them by
// one stated rule. Read next: models/network_cost.hpp.
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
  double bandwidth = 0;  // bytes/s a chip and direction
  double latency_s = 0;
  bool operator==(const InsideFabric&) const = default;
};

struct Nic {
  NicKind kind = NicKind::infiniband;
  int count = 0;         // a node; chip i uses NIC i*count/chips_per_node (its nearest)
  double bandwidth = 0;  // bytes/s each, each direction (written in bits: 200 Gb/s)
  double latency_s = 0;  // one way, NIC to NIC through the switch
  bool operator==(const Nic&) const = default;
};

struct NodeGroup {
  std::string name;
  int nodes = 0;
  Chip chip;
  int chips_per_node = 0;
  InsideFabric inside;
  std::vector<Nic> nics;
  bool operator==(const NodeGroup&) const = default;
};

// Which NIC kind joins two groups. A group's own nodes talk over its first NIC kind. What is not
// listed cannot talk.
struct GroupLink {
  std::string from, to;
  NicKind over = NicKind::ethernet;
  bool operator==(const GroupLink&) const = default;
};

enum class VertexKind : std::uint8_t { chip, inside, nic, network };
struct Vertex {
  VertexKind kind = VertexKind::chip;
  std::string name;  // "ib.3.chip5", "ib.3.nvswitch", "ib.3.nic0", "infiniband"
  int chip = -1;     // global chip index when kind == chip
};
struct LinkProperties {
  int id = -1;           // 0..link_count-1, directed: there and back are two ids
  double bandwidth = 0;  // bytes/s
  double latency_s = 0;
};
using Topology =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Vertex, LinkProperties>;

// Where a group's part of the topology begins. Links are numbered in a fixed order, so that route()
// computes ids instead of searching: node by node; in a node, for each chip first to and from the
// inside fabric, then to and from its NIC of each kind; then for each NIC to and from its network.
struct GroupLayout {
  int first_chip = 0, first_node = 0, first_link = 0, links_per_node = 0;
};

struct Cluster {
  std::string name;
  std::vector<NodeGroup> groups;
  std::vector<GroupLink> links;

  // Derived by build_topology().
  Topology topology;
  int link_count = 0;
  std::vector<std::size_t> chip_vertex;  // by global chip index
  std::vector<int> chip_group;           // group of a chip
  std::vector<int> chip_node;            // global node index of a chip
  std::vector<GroupLayout> layout;       // by group

  int chip_count() const { return static_cast<int>(chip_vertex.size()); }
  const Chip& chip_of(int chip) const { return groups[static_cast<std::size_t>(chip_group[chip])].chip; }
  // Two clusters are equal when what they were built from is.
  bool operator==(const Cluster& other) const {
    return name == other.name && groups == other.groups && links == other.links;
  }
};

std::string_view name_of(FabricKind kind);
std::string_view name_of(NicKind kind);

// Fills in the derived part. Chips are numbered group by group, node by node, so chips of a node
// are consecutive.
void build_topology(Cluster& cluster);

struct Route {
  std::vector<int> links;  // directed link ids, in order
  double latency_s = 0;    // sum
  double bandwidth = 0;    // smallest
  bool inside_node = false;
  bool operator==(const Route&) const = default;
};

// Which NIC kind carries traffic between nodes of two groups; nothing: they cannot talk.
std::optional<NicKind> joining_kind(const Cluster& cluster, int from_group, int to_group);

// Rule (printed by `motley show cluster`): inside a node over the inside fabric; between nodes out
// of the source's nearest NIC of the kind that joins the two groups, over that kind's network, into
// the destination's nearest NIC. Throws Refusal(infeasible, "unreachable") when no common NIC kind
// joins them.
Route route(const Cluster& cluster, int from_chip, int to_chip);
// The source's NIC on that route, for two chips of unlike nodes. Throws as route() does.
const Nic& joining_nic(const Cluster& cluster, int from_chip, int to_chip);

}  // namespace motley
