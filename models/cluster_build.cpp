// build_topology(): every link of a cluster, numbered as models/cluster_layout.hpp says, and the
// graph over them. It knows nothing of routes.
//
// Assumes: without a PCIe tree a chip reaches its NIC at the rate of the inside fabric and in no
// time of its own, so that the NIC is what limits traffic between nodes. Assumes: PCIe and sockets
// add no latency of their own. Assumes: the network of one NIC kind is non-blocking; it is one
// vertex for each set of groups that the kind joins.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "models/cluster_layout.hpp"
#include "models/refusal.hpp"
#include "models/transport.hpp"

namespace motley {
namespace {

using VertexId = Topology::vertex_descriptor;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Sets of groups that one NIC kind joins, by the index of their first group.
std::vector<std::size_t> components(const Cluster& cluster, NicKind kind) {
  std::vector<std::size_t> of(cluster.groups.size());
  std::iota(of.begin(), of.end(), std::size_t{0});
  const auto index_of = [&](const std::string& name) {
    return static_cast<std::size_t>(std::find_if(cluster.groups.begin(), cluster.groups.end(),
                                                 [&](const NodeGroup& group) { return group.name == name; }) -
                                    cluster.groups.begin());
  };
  for (const GroupLink& link : cluster.links) {
    const std::size_t from = index_of(link.from), to = index_of(link.to);
    if (link.over != kind || from == of.size() || to == of.size()) continue;
    const std::size_t joined = std::min(of[from], of[to]), left = std::max(of[from], of[to]);
    std::replace(of.begin(), of.end(), left, joined);
  }
  return of;
}

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
    c_.link_count = 0;
    int node = 0;
    for (std::size_t group = 0; group < c_.groups.size(); ++group) {
      c_.layout.push_back(lay_out(c_.groups[group]));
      GroupLayout& layout = c_.layout.back();
      layout.first_chip = c_.chip_count();
      layout.first_node = node;
      layout.first_link = c_.link_count;
      for (int i = 0; i < c_.groups[group].nodes; ++i) add_node(group, i, node++);
      MOTLEY_CHECK(c_.link_count == layout.first_link + c_.groups[group].nodes * layout.links_per_node);
    }
  }

 private:
  // The vertices of the node at hand.
  struct Node {
    std::size_t group = 0;
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

  VertexId network(NicKind kind, std::size_t group) {
    const std::vector<std::size_t> of = components(c_, kind);
    const auto [found, fresh] = networks_.try_emplace({kind, of[group]}, VertexId{});
    if (fresh) {
      // The plain name where one network of the kind serves every group that has such NICs.
      const bool only = std::all_of(c_.groups.begin(), c_.groups.end(), [&](const NodeGroup& g) {
        return nic_index(g, kind) < 0 || of[static_cast<std::size_t>(&g - c_.groups.data())] == of[group];
      });
      std::string name(name_of(kind));
      if (!only) name += "." + c_.groups[of[group]].name;
      found->second = vertex(VertexKind::network, std::move(name));
    }
    return found->second;
  }

  void add_node(std::size_t group, int node_in_group, int node) {
    const NodeGroup& g = c_.groups[group];
    Node n;
    n.group = group;
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
        link(port, network(nic.kind, n.group),
             {-1, nic.bandwidth * width, nic.latency_s / 2, efficiency_of(nic)});
      }
    }
  }

  Cluster& c_;
  std::map<std::pair<NicKind, std::size_t>, VertexId> networks_;
};

}  // namespace

void build_topology(Cluster& cluster) { Builder(cluster).build(); }

}  // namespace motley
