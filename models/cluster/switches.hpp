// The networks between nodes: the leaf of each port, the numbers of links between switches, and the links that a flow
// takes. Nothing is searched, and nothing is stored for each pair of nodes.
//
// The links of a network follow each other from NetworkLayout::first_link. Each link has two ids, as in a node: the
// even one leads away from the leaf, or from the lower index.
//   leaf_spine, rail_optimised: for each leaf and each way up, the link up. A way is a spine; with adaptive routing
//     one way stands for all spines.
//   dragonfly: for each group of routers and each pair in it, their link; then for each pair of groups, their link,
//     which ends at the routers that gateway() names.
//   with links to other sites: for each leaf or router, its link to the site's exit.
#pragma once

#include "models/cluster/cluster.hpp"

namespace motley {

// Fills in Cluster::network_layout and GroupLayout::network. GroupLayout::ports of every group must be filled in
// before.
void lay_out_networks(Cluster& cluster);
// Whether the network has links between switches other than those to its exit.
bool has_inner_links(const NetworkLayout& layout);
// Whether a hash of its ports chooses the spine of each flow between two leaves.
bool hashes_flows(const NetworkLayout& layout);
// Bytes/s of a leaf's link up, on each of its `ways`.
double uplink_of(const Cluster& cluster, const NetworkLayout& layout);
// The leaf or router of a port.
int leaf_of(const NetworkLayout& layout, int group, int node_in_group, int port);
// The router in `group` at which the link to group `other` ends.
int gateway(const NetworkLayout& layout, int group, int other);

// Appends the links from leaf to leaf. `flow` is a hash of the two ports.
void add_switch_path(std::vector<int>& path, const NetworkLayout& layout, int from_leaf, int to_leaf,
                     std::uint64_t flow);
struct FlowEnd {
  int node = 0, port = 0, leaf = 0;
};
// The hash of the two ports, or of those of the flow's model: see NetworkLayout::models.
std::uint64_t flow_hash(const NetworkLayout& layout, const FlowEnd& from, const FlowEnd& to);

// A link between a leaf and a spine.
struct SpineLink {
  int leaf = 0, way = 0;
  bool up = false;
};
// Nothing: the link is not one between a leaf and a spine of this network.
std::optional<SpineLink> spine_link(const NetworkLayout& layout, int link);

// Index in Cluster::links of the link between two groups. Nothing: no link joins them.
std::optional<std::size_t> joining_link(const Cluster& cluster, int from_group, int to_group);

}  // namespace motley
