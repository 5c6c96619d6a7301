// build_topology(): makes every link of a cluster, numbered as models/cluster/cluster_layout.hpp says, and the graph
// over them. It knows nothing of routes.
//
// Assumes: without a PCIe tree a chip reaches its NIC at the rate of the inside fabric without delay, so that the NIC
// limits traffic between nodes. Assumes: PCIe and sockets add no latency. Assumes: a network that is not described
// never blocks; it is one vertex for each set of groups that the kind joins. Assumes: a leaf can send to its site's
// exit all that it can send up (in a dragonfly, as much as one global link carries).
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/cluster_layout.hpp"
#include "models/cluster/message_cost.hpp"
#include "models/cluster/switches.hpp"
#include "models/cluster/topology.hpp"

namespace motley {

Topology::Topology(std::vector<Vertex> vertices,
                   const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ends)
    : TopologyGraph([&] {
        std::vector<DirectedLink> links(ends.size());
        for (std::size_t i = 0; i < links.size(); ++i) links[i].id = static_cast<int>(i);
        return TopologyGraph(boost::edges_are_unsorted_multi_pass, ends.begin(), ends.end(), links.begin(),
                             static_cast<std::uint32_t>(vertices.size()));
      }()) {
  for (std::size_t i = 0; i < vertices.size(); ++i)
    (*this)[static_cast<std::uint32_t>(i)] = std::move(vertices[i]);
}

namespace {

using VertexId = std::size_t;

// Adds the vertices and links of a topology to the graph, and the links to the cluster's table.
class GraphBuilder {
 public:
  explicit GraphBuilder(Cluster& cluster) : c_(cluster) {}

  VertexId vertex(VertexKind kind, std::string name, int chip = -1) {
    vertices_.push_back({kind, std::move(name), chip});
    return vertices_.size() - 1;
  }

  void link(VertexId a, VertexId b, const LinkProperties& properties) {
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
      LinkProperties directed = properties;
      directed.id = c_.link_count++;
      links_.push_back(directed);
      ends_.emplace_back(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to));
    }
  }

  // Makes room for so many more links, each in two directions.
  void expect_links(std::size_t more) {
    links_.reserve(links_.size() + 2 * more);
    ends_.reserve(ends_.size() + 2 * more);
  }

  void finish() {
    links_.shrink_to_fit();
    c_.link_table = std::move(links_);
    c_.topology = std::make_shared<Topology>(std::move(vertices_), ends_);
  }

 private:
  Cluster& c_;
  std::vector<Vertex> vertices_;
  std::vector<LinkProperties> links_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ends_;  // by link
};

// Builds the switches between nodes and their links.
class NetworkBuilder {
 public:
  NetworkBuilder(Cluster& cluster, GraphBuilder& graph) : c_(cluster), graph_(graph) {}

  void add_switches(NetworkLayout& layout) {
    const std::string name = name_of_network(layout);
    const char* leaf = layout.network.shape == NetworkShape::dragonfly ? "router" : "leaf";
    for (int i = 0; i < layout.leaves; ++i) {
      const VertexId vertex = graph_.vertex(VertexKind::network, layout.network.shape == NetworkShape::single
                                                                     ? name
                                                                     : fmt::format("{}.{}{}", name, leaf, i));
      if (i == 0) layout.first_leaf = layout.exit = vertex;
    }
    if (layout.leaves > 1 && has_site_link(layout))
      layout.exit = graph_.vertex(VertexKind::network, name + ".exit");
  }

  void add_network_links(NetworkLayout& layout) {
    const LinkProperties inner{.latency_s = layout.network.latency_s,
                               .efficiency = switch_efficiency(layout.network.over)};
    layout.first_link = c_.link_count;
    const VertexId leaf = layout.first_leaf;
    if (has_inner_links(layout) && layout.network.shape == NetworkShape::dragonfly)
      add_dragonfly(layout, inner);
    else if (has_inner_links(layout))
      add_spines(layout, inner);
    layout.exits = c_.link_count;
    if (layout.exit == leaf) return;
    LinkProperties out = inner;
    out.bandwidth = layout.network.shape == NetworkShape::dragonfly ? layout.network.global
                                                                    : uplink_of(c_, layout) * layout.ways;
    for (int i = 0; i < layout.leaves; ++i) graph_.link(leaf + at(i), layout.exit, out);
  }

  void add_site_links() {
    for (const GroupLink& site : c_.links) {
      c_.site_link_id.push_back(site.is_site_link() ? c_.link_count : -1);
      if (site.is_site_link())
        graph_.link(layout_of(site.from, site.over).exit, layout_of(site.to, site.over).exit,
                    {.bandwidth = site.bandwidth,
                     .latency_s = site.latency_s,
                     .efficiency = switch_efficiency(site.over)});
    }
  }

 private:
  // The kind's plain name if only one network is of this kind; otherwise the name has the first group's name too.
  std::string name_of_network(const NetworkLayout& layout) const {
    std::string name(name_of(layout.network.over));
    const bool only =
        std::count_if(c_.network_layout.begin(), c_.network_layout.end(),
                      [&](const auto& other) { return other.network.over == layout.network.over; }) == 1;
    const auto first =
        std::find_if(layout.first_node.begin(), layout.first_node.end(), [](int node) { return node >= 0; });
    return only ? name
                : name + "." + c_.groups[static_cast<std::size_t>(first - layout.first_node.begin())].name;
  }

  bool has_site_link(const NetworkLayout& layout) const {
    for (const GroupLink& link : c_.links)
      for (std::size_t group = 0; group < c_.groups.size(); ++group)
        if (link.is_site_link() && link.over == layout.network.over && layout.first_node[group] >= 0 &&
            (c_.groups[group].name == link.from || c_.groups[group].name == link.to))
          return true;
    return false;
  }

  void add_spines(const NetworkLayout& layout, LinkProperties up) {
    up.bandwidth = uplink_of(c_, layout);
    std::vector<VertexId> spines;
    for (int way = 0; way < layout.ways; ++way)
      spines.push_back(
          graph_.vertex(VertexKind::network, fmt::format("{}.spine{}", name_of_network(layout), way)));
    graph_.expect_links(at(layout.leaves) * spines.size());
    for (int leaf = 0; leaf < layout.leaves; ++leaf)
      for (VertexId spine : spines) graph_.link(layout.first_leaf + at(leaf), spine, up);
  }

  void add_dragonfly(const NetworkLayout& layout, LinkProperties wire) {
    const int a = layout.network.routers_per_group, groups = layout.leaves / a;
    wire.bandwidth = layout.network.local;
    for (int group = 0; group < groups; ++group)
      for (int i = 0; i < a; ++i)
        for (int j = i + 1; j < a; ++j)
          graph_.link(layout.first_leaf + at(group * a + i), layout.first_leaf + at(group * a + j), wire);
    wire.bandwidth = layout.network.global;
    for (int g = 0; g < groups; ++g)
      for (int h = g + 1; h < groups; ++h)
        graph_.link(layout.first_leaf + at(gateway(layout, g, h)),
                    layout.first_leaf + at(gateway(layout, h, g)), wire);
  }

  // The network of a group's NICs of that kind.
  const NetworkLayout& layout_of(const std::string& name, NicKind kind) const {
    for (std::size_t group = 0; group < c_.groups.size(); ++group)
      if (c_.groups[group].name == name)
        return c_.network_layout[at(c_.layout[group].network[at(nic_index(c_.groups[group], kind))])];
    MOTLEY_CHECK(false);
    return c_.network_layout.front();
  }

  Cluster& c_;
  GraphBuilder& graph_;
};

// Builds nodes: their chips, fabrics, PCIe trees, NICs and hosts, and the links to the switches of networks.
class NodeBuilder {
 public:
  NodeBuilder(Cluster& cluster, GraphBuilder& graph) : c_(cluster), graph_(graph) {
    for (const Slow& slow : cluster.slow)
      if (slow.node && slow.nics != 1) nic_speed_.try_emplace(*slow.node, 1).first->second *= slow.nics;
  }

  void add_node(std::size_t group, int node_in_group, int node) {
    const NodeGroup& g = c_.groups[group];
    Node n;
    n.group = group;
    n.number = node_in_group;
    if (const auto slow = nic_speed_.find(node); slow != nic_speed_.end()) n.nic_speed = slow->second;
    n.prefix = fmt::format("{}.{}.", g.name, node_in_group);
    add_vertices(g, n);
    for (int i = 0; i < g.chips_per_node; ++i) {
      n.chips.push_back(
          graph_.vertex(VertexKind::chip, fmt::format("{}chip{}", n.prefix, i), c_.chip_count()));
      c_.chip_vertex.push_back(n.chips.back());
      c_.chip_group.push_back(static_cast<int>(group));
      c_.chip_node.push_back(node);
      add_chip_links(g, n, i);
    }
    if (is_mesh(g.inside.kind)) add_mesh(g, n);
    if (g.pcie) add_pcie_links(g, n);
    add_port_links(g, n);
    add_host_links(g, n);
  }

 private:
  // The vertices of one node.
  struct Node {
    std::size_t group = 0;
    int number = 0;        // number in the group
    double nic_speed = 1;  // as Cluster::slow says
    std::string prefix;
    VertexId inside{};
    std::vector<VertexId> switches, sockets, chips;
    std::vector<std::vector<VertexId>> ports;
  };

  void add_host_links(const NodeGroup& g, const Node& n) {
    if (!g.host || g.host->link <= 0) return;
    const VertexId host = graph_.vertex(VertexKind::host, n.prefix + "host");
    for (int i = 0; i < g.chips_per_node; ++i) graph_.link(n.chips[at(i)], host, {.bandwidth = g.host->link});
  }

  void add_vertices(const NodeGroup& g, Node& n) {
    if (is_star(g))
      n.inside = graph_.vertex(VertexKind::inside, n.prefix + std::string(name_of(g.inside.kind)));
    if (g.pcie) {
      for (int i = 0; i < g.pcie->switches; ++i)
        n.switches.push_back(graph_.vertex(VertexKind::pcie_switch, fmt::format("{}pcie{}", n.prefix, i)));
      if (g.pcie->switches == 1)
        n.sockets = n.switches;
      else
        for (int i = 0; i < g.pcie->sockets; ++i)
          n.sockets.push_back(graph_.vertex(VertexKind::socket, fmt::format("{}socket{}", n.prefix, i)));
    }
    for (std::size_t kind = 0; kind < g.nics.size(); ++kind) {
      n.ports.emplace_back();
      for (int i = 0; i < c_.layout[n.group].ports[kind].count(); ++i)
        n.ports.back().push_back(
            graph_.vertex(VertexKind::nic, fmt::format("{}{}{}", n.prefix, name_of(g.nics[kind].kind), i)));
    }
  }

  void add_chip_links(const NodeGroup& g, const Node& n, int chip) {
    const VertexId from = n.chips[at(chip)];
    if (is_star(g))
      graph_.link(from, n.inside,
                  {.bandwidth = g.inside.bandwidth,
                   .latency_s = g.inside.latency_s / 2,
                   .efficiency = efficiency_of(g.inside)});
    if (g.pcie) {
      const double latency_s = is_pcie_tree(g) ? g.inside.latency_s / 2 : 0;
      graph_.link(from, n.switches[at(chip * g.pcie->switches / g.chips_per_node)],
                  {.bandwidth = pcie_bandwidth(g.pcie->generation, g.pcie->lanes),
                   .latency_s = latency_s,
                   .efficiency = efficiency_of(*g.pcie)});
      return;
    }
    for (std::size_t kind = 0; kind < n.ports.size(); ++kind)
      graph_.link(
          from, n.ports[kind][at(c_.layout[n.group].ports[kind].port_of_chip[at(chip)])],
          {.bandwidth = g.inside.bandwidth, .efficiency = native_message_cost(g.nics[kind]).efficiency});
  }

  void add_mesh(const NodeGroup& g, const Node& n) {
    const double bandwidth = g.inside.bandwidth / std::max(1, g.chips_per_node - 1);
    for (int a = 0; a < g.chips_per_node; ++a)
      for (int b = a + 1; b < g.chips_per_node; ++b)
        graph_.link(
            n.chips[at(a)], n.chips[at(b)],
            {.bandwidth = bandwidth, .latency_s = g.inside.latency_s, .efficiency = efficiency_of(g.inside)});
  }

  void add_pcie_links(const NodeGroup& g, const Node& n) {
    const Pcie& pcie = *g.pcie;
    if (pcie.switches > 1)
      for (int i = 0; i < pcie.switches; ++i)
        graph_.link(n.switches[at(i)], n.sockets[at(i * pcie.sockets / pcie.switches)],
                    {.bandwidth = pcie_bandwidth(pcie.generation, pcie.uplink_lanes),
                     .efficiency = usual_pcie_efficiency()});
    for (int a = 0; a < pcie.sockets; ++a)
      for (int b = a + 1; b < pcie.sockets; ++b)
        graph_.link(n.sockets[at(a)], n.sockets[at(b)], {.bandwidth = pcie.socket_link});
  }

  void add_port_links(const NodeGroup& g, const Node& n) {
    for (std::size_t kind = 0; kind < g.nics.size(); ++kind) {
      const Nic& nic = g.nics[kind];
      const PortLayout& ports = c_.layout[n.group].ports[kind];
      for (int i = 0; i < ports.count(); ++i) {
        const VertexId port = n.ports[kind][at(i)];
        const int width = ports.width[at(i)];
        if (g.pcie)
          graph_.link(port, n.switches[at(ports.pcie_switch[at(i)])],
                      {.bandwidth = pcie_bandwidth(g.pcie->generation, g.pcie->nic_lanes) * width,
                       .efficiency = usual_pcie_efficiency()});
        const NetworkLayout& network = c_.network_layout[at(c_.layout[n.group].network[kind])];
        graph_.link(port, network.first_leaf + at(leaf_of(network, static_cast<int>(n.group), n.number, i)),
                    {.bandwidth = nic.bandwidth * width * n.nic_speed,
                     .latency_s = nic.latency_s / 2,
                     .efficiency = efficiency_of(nic)});
      }
    }
  }

  Cluster& c_;
  GraphBuilder& graph_;
  std::unordered_map<int, double> nic_speed_;  // by node; missing: 1
};

// A cluster of a million chips with a NIC each has half as many links.
constexpr std::int64_t kMostLinks = std::int64_t{1} << 24;

// Refuses a cluster whose links could not be kept or counted.
void refuse_too_many_links(const Cluster& cluster) {
  std::int64_t links = 0;
  for (std::size_t group = 0; group < cluster.groups.size(); ++group)
    links += std::int64_t{cluster.groups[group].nodes} * cluster.layout[group].links_per_node;
  for (const NetworkLayout& layout : cluster.network_layout) {
    if (!has_inner_links(layout)) continue;
    const std::int64_t leaves = layout.leaves;
    const bool dragonfly = layout.network.shape == NetworkShape::dragonfly;
    const std::int64_t groups = dragonfly ? leaves / layout.network.routers_per_group : 0;
    links +=
        dragonfly ? leaves * layout.network.routers_per_group + groups * groups : 2 * leaves * layout.ways;
  }
  if (links > kMostLinks)
    throw Refusal(Exit::infeasible, "too-many-links", {},
                  fmt::format("cluster `{}` has {} links", cluster.name, links),
                  fmt::format("at most {}: fewer nodes, or fewer spines", kMostLinks));
}

void clear_derived(Cluster& cluster) {
  cluster.topology.reset();
  cluster.link_table.clear();
  cluster.chip_vertex.clear();
  cluster.chip_group.clear();
  cluster.chip_node.clear();
  cluster.chip_speed.clear();
  cluster.layout.clear();
  cluster.site_link_id.clear();
  cluster.link_count = 0;
}

// Gives every chip its speed. Refuses a chip or a node that is not there.
void set_speeds(Cluster& cluster) {
  const bool all_usual = std::all_of(cluster.slow.begin(), cluster.slow.end(),
                                     [](const Slow& slow) { return slow.factor == 1; });
  if (!all_usual) cluster.chip_speed.assign(at(cluster.chip_count()), 1);
  for (const Slow& slow : cluster.slow) {
    const bool is_there = slow.chip ? *slow.chip >= 0 && *slow.chip < cluster.chip_count()
                                    : *slow.node >= 0 && *slow.node <= cluster.chip_node.back();
    if (!is_there)
      throw Refusal(Exit::usage, "out-of-bounds", {},
                    slow.chip ? fmt::format("`slow` names chip {}", *slow.chip)
                              : fmt::format("`slow` names node {}", *slow.node),
                    fmt::format("cluster `{}` has chips 0 to {} in nodes 0 to {}", cluster.name,
                                cluster.chip_count() - 1, cluster.chip_node.back()));
    if (all_usual) continue;
    if (slow.chip) {
      cluster.chip_speed[at(*slow.chip)] *= slow.factor;
      continue;
    }
    const auto [first, last] =
        std::equal_range(cluster.chip_node.begin(), cluster.chip_node.end(), *slow.node);
    for (auto chip = first; chip != last; ++chip)
      cluster.chip_speed[static_cast<std::size_t>(chip - cluster.chip_node.begin())] *= slow.factor;
  }
}

}  // namespace

void build_topology(Cluster& cluster) {
  clear_derived(cluster);
  for (const NodeGroup& group : cluster.groups) cluster.layout.push_back(lay_out(group));
  lay_out_networks(cluster);
  refuse_too_many_links(cluster);
  GraphBuilder graph(cluster);
  NetworkBuilder networks(cluster, graph);
  NodeBuilder nodes(cluster, graph);
  for (NetworkLayout& network : cluster.network_layout) networks.add_switches(network);
  int node = 0;
  for (std::size_t group = 0; group < cluster.groups.size(); ++group) {
    GroupLayout& layout = cluster.layout[group];
    layout.first_chip = cluster.chip_count();
    layout.first_node = node;
    layout.first_link = cluster.link_count;
    for (int i = 0; i < cluster.groups[group].nodes; ++i) nodes.add_node(group, i, node++);
    MOTLEY_CHECK(cluster.link_count ==
                 layout.first_link + cluster.groups[group].nodes * layout.links_per_node);
  }
  for (NetworkLayout& network : cluster.network_layout) networks.add_network_links(network);
  networks.add_site_links();
  graph.finish();
  set_speeds(cluster);
}

}  // namespace motley
