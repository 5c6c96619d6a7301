// The networks between nodes: which nodes hang where, how their links are numbered, and which of
// them a flow takes. Nothing is searched and nothing stored a pair. Only models/cluster*.cpp
// include this.
//
// The links of a network follow each other from NetworkLayout::first_link, two ids each as in a
// node (away from the leaf, or from the lower index, is even):
//   leaf_spine, rail_optimised: for each leaf, for each way up (a spine; with adaptive routing one
//     way that stands for all of them), the link up;
//   dragonfly: for each group of routers, for each pair in it, their link; then for each pair of
//     groups, their link, which ends at the routers that gateway() names;
//   with links to other sites: for each leaf or router, its link to the site's exit.
#pragma once

#include "models/cluster.hpp"

namespace motley {

// Fills in Cluster::network_layout and GroupLayout::network; needs the ports of the groups.
void lay_out_networks(Cluster& cluster);
bool has_inner_links(const NetworkLayout& network);  // other than exits
// bytes/s of a leaf's link up, one way of `ways`.
double uplink_of(const Cluster& cluster, const NetworkLayout& network);
// The leaf or router of a port.
int leaf_of(const NetworkLayout& network, int group, int node_in_group, int port);
// The router in `group` at which the link to group `other` ends.
int gateway(const NetworkLayout& network, int group, int other);

// Appends the links from leaf to leaf. `flow` is a hash of the two ports.
void add_switch_path(std::vector<int>& path, const NetworkLayout& network, int from_leaf, int to_leaf,
                     std::uint64_t flow);
std::uint64_t flow_hash(int from_node, int from_port, int to_node, int to_port);

// The link between two groups; nothing: they are not joined. Its index in Cluster::links.
std::optional<std::size_t> joining_link(const Cluster& cluster, int from_group, int to_group);

}  // namespace motley
