#include "models/cluster/switches.hpp"

#include <algorithm>
#include <numeric>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/cluster_layout.hpp"

namespace motley {
namespace {

int ceil_of(int count, int by) { return (count + by - 1) / by; }

// By group: the first group that stands on the same network of that kind.
std::vector<std::size_t> components(const Cluster& cluster, NicKind kind) {
  std::vector<std::size_t> first_group(cluster.groups.size());
  std::iota(first_group.begin(), first_group.end(), std::size_t{0});
  const auto index_of = [&](const std::string& name) {
    return static_cast<std::size_t>(std::find_if(cluster.groups.begin(), cluster.groups.end(),
                                                 [&](const NodeGroup& group) { return group.name == name; }) -
                                    cluster.groups.begin());
  };
  for (const GroupLink& link : cluster.links) {
    const std::size_t from = index_of(link.from), to = index_of(link.to);
    if (link.over != kind || link.is_site_link() || from == first_group.size() || to == first_group.size())
      continue;
    const std::size_t joined = std::min(first_group[from], first_group[to]),
                      left = std::max(first_group[from], first_group[to]);
    std::replace(first_group.begin(), first_group.end(), left, joined);
  }
  return first_group;
}

Network network_for(const Cluster& cluster, NicKind kind, const std::vector<std::size_t>& members) {
  for (const Network& network : cluster.networks) {
    if (network.over != kind) continue;
    const bool here =
        network.groups.empty() || std::any_of(members.begin(), members.end(), [&](std::size_t group) {
          return std::find(network.groups.begin(), network.groups.end(), cluster.groups[group].name) !=
                 network.groups.end();
        });
    if (here) return network;
  }
  Network single;
  single.over = kind;
  return single;
}

void place_leaves(NetworkLayout& layout, int nodes) {
  const Network& network = layout.network;
  layout.leaves = network.shape == NetworkShape::single ? 1 : ceil_of(nodes, network.nodes_per_leaf);
  layout.ways = network.routing == Routing::adaptive ? 1 : network.spines;
  if (network.shape == NetworkShape::rail_optimised) layout.leaves *= layout.rails;
  if (network.shape == NetworkShape::dragonfly)  // whole groups of routers, so that every gateway exists
    layout.leaves = ceil_of(layout.leaves, network.routers_per_group) * network.routers_per_group;
}

void add_network(Cluster& cluster, NicKind kind, const std::vector<std::size_t>& members) {
  NetworkLayout layout;
  layout.network = network_for(cluster, kind, members);
  layout.first_node.assign(cluster.groups.size(), -1);
  int nodes = 0;
  for (std::size_t group : members) {
    const int index = nic_index(cluster.groups[group], kind);
    layout.first_node[group] = nodes;
    nodes += cluster.groups[group].nodes;
    layout.rails = std::max(layout.rails, cluster.layout[group].ports[at(index)].count());
    cluster.layout[group].network[at(index)] = static_cast<int>(cluster.network_layout.size());
  }
  place_leaves(layout, nodes);
  cluster.network_layout.push_back(std::move(layout));
}

int groups_of(const NetworkLayout& layout) { return layout.leaves / layout.network.routers_per_group; }

int local_link(const NetworkLayout& layout, int from, int to) {
  const int a = layout.network.routers_per_group, group = from / a;
  const int pair = group * pair_count(a) + pair_index(std::min(from, to) % a, std::max(from, to) % a, a);
  return layout.first_link + 2 * pair + (from < to ? 0 : 1);
}

int global_link(const NetworkLayout& layout, int from_group, int to_group) {
  const int groups = groups_of(layout);
  const int pair = groups * pair_count(layout.network.routers_per_group) +
                   pair_index(std::min(from_group, to_group), std::max(from_group, to_group), groups);
  return layout.first_link + 2 * pair + (from_group < to_group ? 0 : 1);
}

// Appends the minimal path: at most one local link, one global link and one local link.
void add_dragonfly_path(std::vector<int>& path, const NetworkLayout& layout, int from, int to) {
  const int a = layout.network.routers_per_group, from_group = from / a, to_group = to / a;
  if (from_group == to_group) {
    path.push_back(local_link(layout, from, to));
    return;
  }
  const int out = gateway(layout, from_group, to_group), in = gateway(layout, to_group, from_group);
  if (from != out) path.push_back(local_link(layout, from, out));
  path.push_back(global_link(layout, from_group, to_group));
  if (in != to) path.push_back(local_link(layout, in, to));
}

std::uint64_t mixed(std::uint64_t x) {  // SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The port at the same place of another leaf. The leaf need not exist: only its number is hashed.
FlowEnd moved_to(const NetworkLayout& layout, const FlowEnd& end, int leaf) {
  const int rails = layout.network.shape == NetworkShape::rail_optimised ? layout.rails : 1;
  const auto block = [rails](int number) { return (number - (number < 0 ? rails - 1 : 0)) / rails; };
  FlowEnd moved = end;
  moved.leaf = leaf;
  moved.node += (block(leaf) - block(end.leaf)) * layout.network.nodes_per_leaf;
  if (rails > 1) moved.port = leaf - block(leaf) * rails;
  return moved;
}

}  // namespace

void lay_out_networks(Cluster& cluster) {
  cluster.network_layout.clear();
  for (std::size_t group = 0; group < cluster.groups.size(); ++group)
    cluster.layout[group].network.assign(cluster.groups[group].nics.size(), -1);
  for (NicKind kind : {NicKind::infiniband, NicKind::roce, NicKind::ethernet}) {
    const std::vector<std::size_t> first_group = components(cluster, kind);
    for (std::size_t first = 0; first < first_group.size(); ++first) {
      std::vector<std::size_t> members;
      for (std::size_t group = 0; group < first_group.size(); ++group)
        if (first_group[group] == first && nic_index(cluster.groups[group], kind) >= 0)
          members.push_back(group);
      if (!members.empty()) add_network(cluster, kind, members);
    }
  }
}

bool has_inner_links(const NetworkLayout& layout) {
  return layout.network.shape != NetworkShape::single && layout.leaves > 1;
}

bool hashes_flows(const NetworkLayout& layout) {
  return has_inner_links(layout) && layout.network.shape != NetworkShape::dragonfly && layout.ways > 1;
}

double uplink_of(const Cluster& cluster, const NetworkLayout& layout) {
  const Network& network = layout.network;
  const double spines_a_way = static_cast<double>(network.spines) / layout.ways;
  if (network.uplink > 0) return network.uplink * spines_a_way;
  double node = 0;  // bytes/s that one node brings to one leaf
  for (std::size_t group = 0; group < cluster.groups.size(); ++group) {
    if (layout.first_node[group] < 0) continue;
    const int index = nic_index(cluster.groups[group], network.over);
    const Nic& nic = cluster.groups[group].nics[at(index)];
    const std::vector<int>& width = cluster.layout[group].ports[at(index)].width;
    const int nics = network.shape == NetworkShape::rail_optimised
                         ? *std::max_element(width.begin(), width.end())
                         : nic.count;
    node = std::max(node, nics * nic.bandwidth);
  }
  return node * network.nodes_per_leaf / network.oversubscription / layout.ways;
}

int leaf_of(const NetworkLayout& layout, int group, int node_in_group, int port) {
  if (layout.network.shape == NetworkShape::single) return 0;
  const int block = (layout.first_node[at(group)] + node_in_group) / layout.network.nodes_per_leaf;
  return layout.network.shape == NetworkShape::rail_optimised ? block * layout.rails + port : block;
}

int gateway(const NetworkLayout& layout, int group, int other) {
  const int a = layout.network.routers_per_group;
  return group * a + (other < group ? other : other - 1) % a;
}

void add_switch_path(std::vector<int>& path, const NetworkLayout& layout, int from_leaf, int to_leaf,
                     std::uint64_t flow) {
  if (from_leaf == to_leaf) return;
  if (layout.network.shape == NetworkShape::dragonfly) {
    add_dragonfly_path(path, layout, from_leaf, to_leaf);
    return;
  }
  const int way = static_cast<int>(flow % static_cast<std::uint64_t>(layout.ways));
  path.push_back(layout.first_link + 2 * (from_leaf * layout.ways + way));
  path.push_back(layout.first_link + 2 * (to_leaf * layout.ways + way) + 1);
}

std::uint64_t flow_hash(const NetworkLayout& layout, const FlowEnd& from, const FlowEnd& to) {
  FlowEnd source = from, target = to;
  if (layout.models != nullptr) {
    const auto& between = layout.models->between;
    const int other = layout.models->others[at(from.leaf)];
    FlowModels::Leaves leaves{other, to.leaf + other - from.leaf};
    if (const auto known = between.find(std::int64_t{from.leaf} * layout.leaves + to.leaf);
        known != between.end())
      leaves = known->second;
    source = moved_to(layout, from, leaves.from);
    target = moved_to(layout, to, leaves.to);
  }
  const auto port = [](const FlowEnd& end) {
    return (static_cast<std::uint64_t>(end.node) << 16) + static_cast<std::uint64_t>(end.port);
  };
  const std::uint64_t ports = mixed(mixed(port(source)) ^ port(target));
  return layout.draw == 0 ? ports : mixed(ports + static_cast<std::uint64_t>(layout.draw));
}

std::optional<SpineLink> spine_link(const NetworkLayout& layout, int link) {
  if (!has_inner_links(layout) || layout.network.shape == NetworkShape::dragonfly) return std::nullopt;
  const int place = link - layout.first_link;
  if (place < 0 || place >= 2 * layout.leaves * layout.ways) return std::nullopt;
  return SpineLink{place / 2 / layout.ways, place / 2 % layout.ways, place % 2 == 0};
}

std::optional<std::size_t> joining_link(const Cluster& cluster, int from_group, int to_group) {
  const std::string &a = cluster.groups[at(from_group)].name, &b = cluster.groups[at(to_group)].name;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const GroupLink& link = cluster.links[i];
    if ((link.from == a && link.to == b) || (link.from == b && link.to == a)) return i;
  }
  return std::nullopt;
}

}  // namespace motley
