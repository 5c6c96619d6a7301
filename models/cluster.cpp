#include "models/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
constexpr std::array<const char*, 3> kNicNames = {"infiniband", "roce", "ethernet"};
constexpr std::array<const char*, 5> kFabricNames = {"nvswitch", "nvlink_mesh", "xgmi_mesh", "pcie",
                                                     "loopback"};

std::size_t add_vertex(Cluster& cluster, VertexKind kind, std::string name, int chip = -1) {
  return boost::add_vertex(Vertex{kind, std::move(name), chip}, cluster.topology);
}
void add_duplex(Cluster& cluster, std::size_t a, std::size_t b, double bandwidth, double latency_s) {
  boost::add_edge(a, b, LinkProperties{cluster.link_count++, bandwidth, latency_s}, cluster.topology);
  boost::add_edge(b, a, LinkProperties{cluster.link_count++, bandwidth, latency_s}, cluster.topology);
}

// The network of a NIC kind, made when first asked for: one non-blocking switch.
// Assumes: every NIC of a kind reaches every other of that kind at full rate; group links say who may.
class Networks {
 public:
  explicit Networks(Cluster& cluster) : cluster_(cluster) {}
  std::size_t of(NicKind kind) {
    auto& made = vertices_[at(static_cast<int>(kind))];
    if (made < 0)
      made = static_cast<std::int64_t>(
          add_vertex(cluster_, VertexKind::network, kNicNames[at(static_cast<int>(kind))]));
    return at(made);
  }

 private:
  Cluster& cluster_;
  std::array<std::int64_t, 3> vertices_ = {-1, -1, -1};
};

void add_node(Cluster& cluster, Networks& networks, int group_index, int node_in_group, int node) {
  const NodeGroup& group = cluster.groups[at(group_index)];
  const std::string name = fmt::format("{}.{}", group.name, node_in_group);
  const auto inside =
      add_vertex(cluster, VertexKind::inside,
                 fmt::format("{}.{}", name, kFabricNames[at(static_cast<int>(group.inside.kind))]));
  std::vector<std::size_t> chips;
  for (int i = 0; i < group.chips_per_node; ++i) {
    chips.push_back(
        add_vertex(cluster, VertexKind::chip, fmt::format("{}.chip{}", name, i), cluster.chip_count()));
    cluster.chip_vertex.push_back(chips.back());
    cluster.chip_group.push_back(group_index);
    cluster.chip_node.push_back(node);
    add_duplex(cluster, chips.back(), inside, group.inside.bandwidth, group.inside.latency_s / 2);
  }
  for (const Nic& nic : group.nics) {
    std::vector<std::size_t> made;
    for (int i = 0; i < nic.count; ++i) {
      made.push_back(add_vertex(cluster, VertexKind::nic,
                                fmt::format("{}.{}{}", name, kNicNames[at(static_cast<int>(nic.kind))], i)));
      add_duplex(cluster, made.back(), networks.of(nic.kind), nic.bandwidth, nic.latency_s / 2);
    }
    for (int i = 0; i < group.chips_per_node; ++i)
      add_duplex(cluster, chips[at(i)],
                 made[at(static_cast<std::int64_t>(i) * nic.count / group.chips_per_node)],
                 group.inside.bandwidth, 0.0);
  }
}

const Nic* nic_of(const NodeGroup& group, NicKind kind) {
  for (const Nic& nic : group.nics)
    if (nic.kind == kind) return &nic;
  return nullptr;
}

// The NIC kind that joins two chips' nodes, or nothing.
const NicKind* joining_kind(const Cluster& cluster, int from_group, int to_group) {
  const NodeGroup& from = cluster.groups[at(from_group)];
  const NodeGroup& to = cluster.groups[at(to_group)];
  if (from_group == to_group) return from.nics.empty() ? nullptr : &from.nics.front().kind;
  for (const GroupLink& link : cluster.links) {
    const bool joins =
        (link.from == from.name && link.to == to.name) || (link.from == to.name && link.to == from.name);
    if (joins && nic_of(from, link.over) != nullptr && nic_of(to, link.over) != nullptr) return &link.over;
  }
  return nullptr;
}

// The link from one vertex to another, sought at the end with fewer links: a network has thousands.
const LinkProperties& link_between(const Topology& graph, std::size_t from, std::size_t to) {
  if (boost::out_degree(from, graph) < boost::in_degree(to, graph)) {
    for (auto [edge, end] = boost::out_edges(from, graph); edge != end; ++edge)
      if (boost::target(*edge, graph) == to) return graph[*edge];
  } else {
    for (auto [edge, end] = boost::in_edges(to, graph); edge != end; ++edge)
      if (boost::source(*edge, graph) == from) return graph[*edge];
  }
  throw std::logic_error("no link between " + graph[from].name + " and " + graph[to].name);
}

void follow(const Cluster& cluster, Route& route, std::size_t from, std::size_t to) {
  const LinkProperties& link = link_between(cluster.topology, from, to);
  route.links.push_back(link.id);
  route.latency_s += link.latency_s;
  route.bandwidth = route.bandwidth == 0 ? link.bandwidth : std::min(route.bandwidth, link.bandwidth);
}

// The neighbour of a chip that is its node's fabric, or its NIC of the kind (by the network that NIC leads to).
std::size_t inside_of(const Cluster& cluster, std::size_t chip) {
  for (auto [edge, end] = boost::out_edges(chip, cluster.topology); edge != end; ++edge)
    if (cluster.topology[boost::target(*edge, cluster.topology)].kind == VertexKind::inside)
      return boost::target(*edge, cluster.topology);
  MOTLEY_CHECK(!"a chip without a fabric");
  return 0;
}
struct NicAndNetwork {
  std::size_t nic, network;
};
NicAndNetwork nic_towards(const Cluster& cluster, std::size_t chip, NicKind kind) {
  const Topology& graph = cluster.topology;
  for (auto [edge, end] = boost::out_edges(chip, graph); edge != end; ++edge) {
    const auto nic = boost::target(*edge, graph);
    if (graph[nic].kind != VertexKind::nic) continue;
    for (auto [up, up_end] = boost::out_edges(nic, graph); up != up_end; ++up) {
      const auto network = boost::target(*up, graph);
      if (graph[network].kind == VertexKind::network &&
          graph[network].name == kNicNames[at(static_cast<int>(kind))])
        return {nic, network};
    }
  }
  MOTLEY_CHECK(!"a chip without a NIC of that kind");
  return {};
}

}  // namespace

void build_topology(Cluster& cluster) {
  cluster.topology = Topology();
  cluster.link_count = 0;
  cluster.chip_vertex.clear();
  cluster.chip_group.clear();
  cluster.chip_node.clear();
  Networks networks(cluster);
  int node = 0;
  for (int group = 0; group < static_cast<int>(cluster.groups.size()); ++group)
    for (int i = 0; i < cluster.groups[at(group)].nodes; ++i) add_node(cluster, networks, group, i, node++);
}

Route route(const Cluster& cluster, int from_chip, int to_chip) {
  Route found;
  const auto from = cluster.chip_vertex[at(from_chip)], to = cluster.chip_vertex[at(to_chip)];
  found.inside_node = cluster.chip_node[at(from_chip)] == cluster.chip_node[at(to_chip)];
  if (found.inside_node) {
    if (from == to) return found;
    const auto inside = inside_of(cluster, from);
    follow(cluster, found, from, inside);
    follow(cluster, found, inside, to);
    return found;
  }
  const int from_group = cluster.chip_group[at(from_chip)], to_group = cluster.chip_group[at(to_chip)];
  const NicKind* kind = joining_kind(cluster, from_group, to_group);
  if (kind == nullptr)
    throw Refusal(Exit::infeasible, "unreachable", {},
                  fmt::format("no link joins {} and {} in cluster `{}`", cluster.topology[from].name,
                              cluster.topology[to].name, cluster.name),
                  fmt::format("links: - {{between: [{}, {}], over: ethernet}}",
                              cluster.groups[at(from_group)].name, cluster.groups[at(to_group)].name));
  const auto out = nic_towards(cluster, from, *kind), in = nic_towards(cluster, to, *kind);
  follow(cluster, found, from, out.nic);
  follow(cluster, found, out.nic, out.network);
  follow(cluster, found, in.network, in.nic);
  follow(cluster, found, in.nic, to);
  return found;
}

}  // namespace motley
