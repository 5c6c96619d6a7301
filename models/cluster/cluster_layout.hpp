// Numbers of a node's links, so that routes compute ids instead of searching. The order in a node is:
//   for each chip: link to the inside fabric where that is a star; then to its PCIe switch or, without a PCIe tree,
//     to its port of each NIC kind;
//   for each pair of chips a < b of a mesh: their link;
//   for each PCIe switch, if there are several: its uplink; for each pair of sockets: their link;
//   for each NIC kind and port: link to its PCIe switch, if there is a tree; link to its network;
//   for each chip: its own link to the host, if it has one.
// Every link has two ids: the even one leads away from the chip (or from the lower index), the odd one back. Read
// next: models/cluster/cluster_build.cpp, which makes the links in this order.
#pragma once

#include "models/cluster/cluster.hpp"

namespace motley {

inline bool is_mesh(FabricKind kind) {
  return kind == FabricKind::nvlink_mesh || kind == FabricKind::xgmi_mesh;
}
// Whether chips of a node communicate through its PCIe tree.
inline bool is_pcie_tree(const NodeGroup& group) {
  return group.inside.kind == FabricKind::pcie && group.pcie.has_value();
}
inline bool is_star(const NodeGroup& group) { return !is_mesh(group.inside.kind) && !is_pcie_tree(group); }

// Index of the pair a < b among the pairs of n, in the order (0, 1), (0, 2), ... (1, 2), ...
constexpr int pair_index(int a, int b, int n) { return a * (2 * n - a - 1) / 2 + (b - a - 1); }
constexpr int pair_count(int n) { return n * (n - 1) / 2; }

GroupLayout lay_out(const NodeGroup& group);

// The ids of one node's links that lead away from chips.
struct NodeLinks {
  const NodeGroup& group;
  const GroupLayout& layout;
  int first;  // id of the node's first link

  int chip(int chip) const { return first + chip * layout.links_a_chip; }
  int to_inside(int chip_in_node) const { return chip(chip_in_node); }
  int to_pcie(int chip_in_node) const { return chip(chip_in_node) + (is_star(group) ? 2 : 0); }
  int to_port(int chip_in_node, int kind_index) const { return to_pcie(chip_in_node) + 2 * kind_index; }
  // The link between two chips of a mesh, from one to the other.
  int peer(int from, int to) const;
  int uplink(int pcie_switch) const { return first + layout.uplinks + 2 * pcie_switch; }
  int between_sockets(int from, int to) const;
  int to_host(int chip_in_node) const { return first + layout.hosts + 2 * chip_in_node; }
  int port_to_pcie(int kind_index, int port) const { return port_link(kind_index, port); }
  int port_to_network(int kind_index, int port) const {
    return port_link(kind_index, port) + (group.pcie ? 2 : 0);
  }

  int switch_of(int chip_in_node) const { return chip_in_node * group.pcie->switches / group.chips_per_node; }
  int socket_of(int pcie_switch) const { return pcie_switch * group.pcie->sockets / group.pcie->switches; }

 private:
  int port_link(int kind_index, int port) const;
};

// Bytes/s of `lanes` lanes in each direction, after line coding. `generation` is 1 to 6.
double pcie_bandwidth(int generation, int lanes);

// Index in group.nics. -1: the group has no NIC of that kind.
int nic_index(const NodeGroup& group, NicKind kind);

}  // namespace motley
