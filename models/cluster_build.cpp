// build_topology(): every link of a cluster, numbered as models/cluster_layout.hpp says, and the
// graph over them. It knows nothing of routes.
//
// Assumes: without a PCIe tree a chip reaches its NIC at the rate of the inside fabric and in no
// time of its own, so that the NIC is what limits traffic between nodes. Assumes: PCIe and sockets
// add no latency of their own. Assumes: a network that is not described never blocks; it is one
// vertex for each set of groups that the kind joins. Assumes: a leaf passes to its site's exit all
// that it passes up (of a dragonfly, as much as one global link carries).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/cluster_layout.hpp"
#include "models/refusal.hpp"
#include "models/switches.hpp"
#include "models/transport.hpp"

namespace motley {
namespace {

using VertexId = Topology::vertex_descriptor;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Builder {
 public:
  explicit Builder(Cluster& cluster) : c_(cluster) {}

  void build() {
    c_.topology.clear();
    c_.link_table.clear();
    c_.chip_vertex.clear();
    c_.chip_group.clear();
    c_.chip_node.clear();
    c_.layout.clear();
    c_.site_link_id.clear();
    c_.link_count = 0;
    for (const NodeGroup& group : c_.groups) c_.layout.push_back(lay_out(group));
    lay_out_networks(c_);
    for (NetworkLayout& network : c_.network_layout) add_switches(network);
    int node = 0;
    for (std::size_t group = 0; group < c_.groups.size(); ++group) {
      GroupLayout& layout = c_.layout[group];
      layout.first_chip = c_.chip_count();
      layout.first_node = node;
      layout.first_link = c_.link_count;
      for (int i = 0; i < c_.groups[group].nodes; ++i) add_node(group, i, node++);
      MOTLEY_CHECK(c_.link_count == layout.first_link + c_.groups[group].nodes * layout.links_per_node);
    }
    for (NetworkLayout& network : c_.network_layout) add_network_links(network);
    add_site_links();
  }

 private:
  // The vertices of the node at hand.
  struct Node {
    std::size_t group = 0;
    int number = 0;  // in the group
    std::string prefix;
    VertexId inside{};
    std::vector<VertexId> switches, sockets, chips;
    std::vector<std::vector<VertexId>> ports;
  };

  VertexId vertex(VertexKind kind, std::string name, int chip = -1) {
    return boost::add_vertex(Vertex{kind, std::move(name), chip}, c_.topology);
  }

  void link(VertexId a, VertexId b, const LinkProperties& properties) {
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
      LinkProperties directed = properties;
      directed.id = c_.link_count++;
      c_.link_table.push_back(directed);
      boost::add_edge(from, to, directed, c_.topology);
    }
  }

  // The plain name where one network of the kind serves every group that has such NICs.
  std::string name_of_network(const NetworkLayout& network) const {
    std::string name(name_of(network.of.over));
    const bool only = std::count_if(c_.network_layout.begin(), c_.network_layout.end(),
                                    [&](const auto& other) { return other.of.over == network.of.over; }) == 1;
    const auto first = std::find_if(network.first_node.begin(), network.first_node.end(),
                                    [](int node) { return node >= 0; });
    return only ? name
                : name + "." + c_.groups[static_cast<std::size_t>(first - network.first_node.begin())].name;
  }

  void add_switches(NetworkLayout& network) {
    const std::string name = name_of_network(network);
    const char* leaf = network.of.shape == NetworkShape::dragonfly ? "router" : "leaf";
    for (int i = 0; i < network.leaves; ++i) {
      const VertexId made =
          vertex(VertexKind::network,
                 network.of.shape == NetworkShape::single ? name : fmt::format("{}.{}{}", name, leaf, i));
      if (i == 0) network.first_leaf = network.exit = made;
    }
    if (network.leaves > 1 && has_site_link(network))
      network.exit = vertex(VertexKind::network, name + ".exit");
  }

  bool has_site_link(const NetworkLayout& network) const {
    for (const GroupLink& link : c_.links)
      for (std::size_t group = 0; group < c_.groups.size(); ++group)
        if (link.is_site_link() && link.over == network.of.over && network.first_node[group] >= 0 &&
            (c_.groups[group].name == link.from || c_.groups[group].name == link.to))
          return true;
    return false;
  }

  void add_network_links(NetworkLayout& network) {
    const LinkProperties inner{-1, 0, network.of.latency_s, switch_efficiency(network.of.over)};
    network.first_link = c_.link_count;
    const VertexId leaf = network.first_leaf;
    if (has_inner_links(network) && network.of.shape == NetworkShape::dragonfly)
      add_dragonfly(network, inner);
    else if (has_inner_links(network))
      add_spines(network, inner);
    network.exits = c_.link_count;
    if (network.exit == leaf) return;
    LinkProperties out = inner;
    out.bandwidth = network.of.shape == NetworkShape::dragonfly ? network.of.global
                                                                : uplink_of(c_, network) * network.ways;
    for (int i = 0; i < network.leaves; ++i) link(leaf + at(i), network.exit, out);
  }

  void add_spines(const NetworkLayout& network, LinkProperties up) {
    up.bandwidth = uplink_of(c_, network);
    std::vector<VertexId> spines;
    for (int way = 0; way < network.ways; ++way)
      spines.push_back(vertex(VertexKind::network, fmt::format("{}.spine{}", name_of_network(network), way)));
    for (int leaf = 0; leaf < network.leaves; ++leaf)
      for (VertexId spine : spines) link(network.first_leaf + at(leaf), spine, up);
  }

  void add_dragonfly(const NetworkLayout& network, LinkProperties wire) {
    const int a = network.of.routers_per_group, groups = network.leaves / a;
    wire.bandwidth = network.of.local;
    for (int group = 0; group < groups; ++group)
      for (int i = 0; i < a; ++i)
        for (int j = i + 1; j < a; ++j)
          link(network.first_leaf + at(group * a + i), network.first_leaf + at(group * a + j), wire);
    wire.bandwidth = network.of.global;
    for (int g = 0; g < groups; ++g)
      for (int h = g + 1; h < groups; ++h)
        link(network.first_leaf + at(gateway(network, g, h)), network.first_leaf + at(gateway(network, h, g)),
             wire);
  }

  // The network of a group's NICs of that kind.
  const NetworkLayout& network_of(const std::string& name, NicKind kind) const {
    for (std::size_t group = 0; group < c_.groups.size(); ++group)
      if (c_.groups[group].name == name)
        return c_.network_layout[at(c_.layout[group].network[at(nic_index(c_.groups[group], kind))])];
    MOTLEY_CHECK(false);
    return c_.network_layout.front();
  }

  void add_site_links() {
    for (const GroupLink& site : c_.links) {
      c_.site_link_id.push_back(site.is_site_link() ? c_.link_count : -1);
      if (site.is_site_link())
        link(network_of(site.from, site.over).exit, network_of(site.to, site.over).exit,
             {-1, site.bandwidth, site.latency_s, switch_efficiency(site.over)});
    }
  }

  void add_node(std::size_t group, int node_in_group, int node) {
    const NodeGroup& g = c_.groups[group];
    Node n;
    n.group = group;
    n.number = node_in_group;
    n.prefix = fmt::format("{}.{}.", g.name, node_in_group);
    add_vertices(g, n);
    for (int i = 0; i < g.chips_per_node; ++i) {
      n.chips.push_back(vertex(VertexKind::chip, fmt::format("{}chip{}", n.prefix, i), c_.chip_count()));
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

  void add_host_links(const NodeGroup& g, const Node& n) {
    if (!g.host || g.host->link <= 0) return;
    const VertexId host = vertex(VertexKind::host, n.prefix + "host");
    for (int i = 0; i < g.chips_per_node; ++i) link(n.chips[at(i)], host, {-1, g.host->link, 0, 1.0});
  }

  void add_vertices(const NodeGroup& g, Node& n) {
    if (is_star(g)) n.inside = vertex(VertexKind::inside, n.prefix + std::string(name_of(g.inside.kind)));
    if (g.pcie) {
      for (int i = 0; i < g.pcie->switches; ++i)
        n.switches.push_back(vertex(VertexKind::pcie_switch, fmt::format("{}pcie{}", n.prefix, i)));
      if (g.pcie->switches == 1)
        n.sockets = n.switches;
      else
        for (int i = 0; i < g.pcie->sockets; ++i)
          n.sockets.push_back(vertex(VertexKind::socket, fmt::format("{}socket{}", n.prefix, i)));
    }
    for (std::size_t kind = 0; kind < g.nics.size(); ++kind) {
      n.ports.emplace_back();
      for (int i = 0; i < c_.layout[n.group].ports[kind].count(); ++i)
        n.ports.back().push_back(
            vertex(VertexKind::nic, fmt::format("{}{}{}", n.prefix, name_of(g.nics[kind].kind), i)));
    }
  }

  void add_chip_links(const NodeGroup& g, const Node& n, int chip) {
    const VertexId from = n.chips[at(chip)];
    if (is_star(g))
      link(from, n.inside, {-1, g.inside.bandwidth, g.inside.latency_s / 2, efficiency_of(g.inside)});
    if (g.pcie) {
      const double latency_s = is_pcie_tree(g) ? g.inside.latency_s / 2 : 0;
      link(from, n.switches[at(chip * g.pcie->switches / g.chips_per_node)],
           {-1, pcie_bandwidth(g.pcie->generation, g.pcie->lanes), latency_s, efficiency_of(*g.pcie)});
      return;
    }
    for (std::size_t kind = 0; kind < n.ports.size(); ++kind)
      link(from, n.ports[kind][at(c_.layout[n.group].ports[kind].of_chip[at(chip)])],
           {-1, g.inside.bandwidth, 0, native_transport(g.nics[kind]).efficiency});
  }

  void add_mesh(const NodeGroup& g, const Node& n) {
    const double bandwidth = g.inside.bandwidth / std::max(1, g.chips_per_node - 1);
    for (int a = 0; a < g.chips_per_node; ++a)
      for (int b = a + 1; b < g.chips_per_node; ++b)
        link(n.chips[at(a)], n.chips[at(b)], {-1, bandwidth, g.inside.latency_s, efficiency_of(g.inside)});
  }

  void add_pcie_links(const NodeGroup& g, const Node& n) {
    const Pcie& pcie = *g.pcie;
    if (pcie.switches > 1)
      for (int i = 0; i < pcie.switches; ++i)
        link(n.switches[at(i)], n.sockets[at(i * pcie.sockets / pcie.switches)],
             {-1, pcie_bandwidth(pcie.generation, pcie.uplink_lanes), 0, usual_pcie_efficiency()});
    for (int a = 0; a < pcie.sockets; ++a)
      for (int b = a + 1; b < pcie.sockets; ++b)
        link(n.sockets[at(a)], n.sockets[at(b)], {-1, pcie.socket_link, 0, 1.0});
  }

  void add_port_links(const NodeGroup& g, const Node& n) {
    for (std::size_t kind = 0; kind < g.nics.size(); ++kind) {
      const Nic& nic = g.nics[kind];
      const PortLayout& ports = c_.layout[n.group].ports[kind];
      for (int i = 0; i < ports.count(); ++i) {
        const VertexId port = n.ports[kind][at(i)];
        const int width = ports.width[at(i)];
        if (g.pcie)
          link(port, n.switches[at(ports.pcie_switch[at(i)])],
               {-1, pcie_bandwidth(g.pcie->generation, g.pcie->nic_lanes) * width, 0,
                usual_pcie_efficiency()});
        const NetworkLayout& network = c_.network_layout[at(c_.layout[n.group].network[kind])];
        link(port, network.first_leaf + at(leaf_of(network, static_cast<int>(n.group), n.number, i)),
             {-1, nic.bandwidth * width, nic.latency_s / 2, efficiency_of(nic)});
      }
    }
  }

  Cluster& c_;
};

}  // namespace

void build_topology(Cluster& cluster) { Builder(cluster).build(); }

}  // namespace motley
