// The topology of a cluster and the one rule of its routes. Nothing is searched: a route follows
// from where its ends stand. Read next: models/network_cost.hpp.
//
// Assumes: a chip reaches its NIC at the rate of the inside fabric and in no time of its own, so
// that the NIC is what limits traffic between nodes. Assumes: the network of one NIC kind is
// non-blocking; it is one vertex for each set of groups that the kind joins.
#include "models/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "models/refusal.hpp"

namespace motley {
namespace {

using VertexId = Topology::vertex_descriptor;

int nic_of_chip(const NodeGroup& group, const Nic& nic, int chip_in_node) {
  return chip_in_node * nic.count / group.chips_per_node;
}

const Nic* find_nic(const NodeGroup& group, NicKind kind) {
  const auto found =
      std::find_if(group.nics.begin(), group.nics.end(), [&](const Nic& nic) { return nic.kind == kind; });
  return found == group.nics.end() ? nullptr : &*found;
}

int links_per_node(const NodeGroup& group) {
  int nics = 0;
  for (const Nic& nic : group.nics) nics += nic.count;
  return 2 * (group.chips_per_node * (1 + static_cast<int>(group.nics.size())) + nics);
}

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
    c_.chip_vertex.clear();
    c_.chip_group.clear();
    c_.chip_node.clear();
    c_.layout.clear();
    c_.link_count = 0;
    int node = 0;
    for (std::size_t group = 0; group < c_.groups.size(); ++group) {
      const NodeGroup& g = c_.groups[group];
      c_.layout.push_back({c_.chip_count(), node, c_.link_count, links_per_node(g)});
      for (int i = 0; i < g.nodes; ++i) add_node(group, i, node++);
    }
  }

 private:
  VertexId vertex(VertexKind kind, std::string name, int chip = -1) {
    return boost::add_vertex(Vertex{kind, std::move(name), chip}, c_.topology);
  }

  void link(VertexId a, VertexId b, double bandwidth, double latency_s) {
    boost::add_edge(a, b, LinkProperties{c_.link_count++, bandwidth, latency_s}, c_.topology);
    boost::add_edge(b, a, LinkProperties{c_.link_count++, bandwidth, latency_s}, c_.topology);
  }

  VertexId network(NicKind kind, std::size_t group) {
    const std::vector<std::size_t> of = components(c_, kind);
    const auto [found, fresh] = networks_.try_emplace({kind, of[group]}, VertexId{});
    if (fresh) {
      // The plain name where one network of the kind serves every group that has such NICs.
      const bool only = std::all_of(c_.groups.begin(), c_.groups.end(), [&](const NodeGroup& g) {
        return !find_nic(g, kind) || of[static_cast<std::size_t>(&g - c_.groups.data())] == of[group];
      });
      std::string name(name_of(kind));
      if (!only) name += "." + c_.groups[of[group]].name;
      found->second = vertex(VertexKind::network, std::move(name));
    }
    return found->second;
  }

  void add_node(std::size_t group, int node_in_group, int node) {
    const NodeGroup& g = c_.groups[group];
    const std::string prefix = fmt::format("{}.{}.", g.name, node_in_group);
    const VertexId inside = vertex(VertexKind::inside, prefix + std::string(name_of(g.inside.kind)));
    std::vector<std::vector<VertexId>> nics;
    for (const Nic& nic : g.nics) {
      nics.emplace_back();
      for (int i = 0; i < nic.count; ++i)
        nics.back().push_back(vertex(VertexKind::nic, fmt::format("{}{}{}", prefix, name_of(nic.kind), i)));
    }
    for (int i = 0; i < g.chips_per_node; ++i) {
      const VertexId chip = vertex(VertexKind::chip, fmt::format("{}chip{}", prefix, i), c_.chip_count());
      c_.chip_vertex.push_back(chip);
      c_.chip_group.push_back(static_cast<int>(group));
      c_.chip_node.push_back(node);
      link(chip, inside, g.inside.bandwidth, g.inside.latency_s / 2);
      for (std::size_t k = 0; k < nics.size(); ++k)
        link(chip, nics[k][static_cast<std::size_t>(nic_of_chip(g, g.nics[k], i))], g.inside.bandwidth, 0);
    }
    for (std::size_t k = 0; k < nics.size(); ++k)
      for (VertexId nic : nics[k])
        link(nic, network(g.nics[k].kind, group), g.nics[k].bandwidth, g.nics[k].latency_s / 2);
  }

  Cluster& c_;
  std::map<std::pair<NicKind, std::size_t>, VertexId> networks_;
};

// Where a chip stands, and the ids of the links it uses. Odd ids lead back.
struct Place {
  const NodeGroup& group;
  int chip_in_node;
  int first_link;  // of the node

  int links_a_chip() const { return 2 * (1 + static_cast<int>(group.nics.size())); }
  int to_inside() const { return first_link + chip_in_node * links_a_chip(); }
  int to_nic(int kind_index) const { return to_inside() + 2 * (1 + kind_index); }
  int to_network(int kind_index) const {
    int nics_before = 0;
    for (int k = 0; k < kind_index; ++k) nics_before += group.nics[static_cast<std::size_t>(k)].count;
    const Nic& nic = group.nics[static_cast<std::size_t>(kind_index)];
    return first_link + group.chips_per_node * links_a_chip() +
           2 * (nics_before + nic_of_chip(group, nic, chip_in_node));
  }
};

Place place_of(const Cluster& c, int chip) {
  const auto group = static_cast<std::size_t>(c.chip_group[static_cast<std::size_t>(chip)]);
  const NodeGroup& g = c.groups[group];
  const GroupLayout& layout = c.layout[group];
  const int in_group = chip - layout.first_chip;
  return {g, in_group % g.chips_per_node,
          layout.first_link + in_group / g.chips_per_node * layout.links_per_node};
}

std::string name_of_chip(const Cluster& c, int chip) {
  return c.topology[c.chip_vertex[static_cast<std::size_t>(chip)]].name;
}

[[noreturn]] void refuse_unreachable(const Cluster& c, int from, int to) {
  const std::string& a = c.groups[static_cast<std::size_t>(c.chip_group[from])].name;
  const std::string& b = c.groups[static_cast<std::size_t>(c.chip_group[to])].name;
  const std::string hint =
      a == b ? fmt::format("give group `{}` a NIC under `nics:`", a)
             : fmt::format(
                   "add `- {{between: [{}, {}], over: ethernet}}` under `links:` (both need "
                   "such a NIC), or use fewer chips",
                   a, b);
  throw Refusal(Exit::infeasible, "unreachable", {},
                fmt::format("chip {} ({}) cannot reach chip {} ({}) in cluster `{}`", from,
                            name_of_chip(c, from), to, name_of_chip(c, to), c.name),
                hint);
}

}  // namespace

std::string_view name_of(FabricKind kind) {
  switch (kind) {
    case FabricKind::nvswitch:
      return "nvswitch";
    case FabricKind::nvlink_mesh:
      return "nvlink_mesh";
    case FabricKind::xgmi_mesh:
      return "xgmi_mesh";
    case FabricKind::pcie:
      return "pcie";
    case FabricKind::loopback:
      return "loopback";
  }
  return "?";
}

std::string_view name_of(NicKind kind) {
  switch (kind) {
    case NicKind::infiniband:
      return "infiniband";
    case NicKind::roce:
      return "roce";
    case NicKind::ethernet:
      return "ethernet";
  }
  return "?";
}

void build_topology(Cluster& cluster) { Builder(cluster).build(); }

std::optional<NicKind> joining_kind(const Cluster& c, int from_group, int to_group) {
  const NodeGroup& a = c.groups[static_cast<std::size_t>(from_group)];
  const NodeGroup& b = c.groups[static_cast<std::size_t>(to_group)];
  if (from_group == to_group) {
    if (a.nics.empty()) return std::nullopt;
    return a.nics[0].kind;
  }
  for (const GroupLink& link : c.links) {
    const bool joins =
        (link.from == a.name && link.to == b.name) || (link.from == b.name && link.to == a.name);
    if (joins && find_nic(a, link.over) && find_nic(b, link.over)) return link.over;
  }
  return std::nullopt;
}

const Nic& joining_nic(const Cluster& c, int from_chip, int to_chip) {
  const int from_group = c.chip_group[static_cast<std::size_t>(from_chip)];
  const auto kind = joining_kind(c, from_group, c.chip_group[static_cast<std::size_t>(to_chip)]);
  if (!kind) refuse_unreachable(c, from_chip, to_chip);
  return *find_nic(c.groups[static_cast<std::size_t>(from_group)], *kind);
}

Route route(const Cluster& c, int from_chip, int to_chip) {
  Route route;
  route.inside_node =
      c.chip_node[static_cast<std::size_t>(from_chip)] == c.chip_node[static_cast<std::size_t>(to_chip)];
  if (from_chip == to_chip) {
    route.bandwidth = std::numeric_limits<double>::infinity();
    return route;
  }
  const Place from = place_of(c, from_chip), to = place_of(c, to_chip);
  if (route.inside_node) {
    route.links = {from.to_inside(), to.to_inside() + 1};
    route.latency_s = from.group.inside.latency_s / 2 + to.group.inside.latency_s / 2;
    route.bandwidth = from.group.inside.bandwidth;
    return route;
  }
  const auto kind = joining_kind(c, c.chip_group[static_cast<std::size_t>(from_chip)],
                                 c.chip_group[static_cast<std::size_t>(to_chip)]);
  if (!kind) refuse_unreachable(c, from_chip, to_chip);
  const Nic &out = *find_nic(from.group, *kind), &in = *find_nic(to.group, *kind);
  const int out_index = static_cast<int>(&out - from.group.nics.data());
  const int in_index = static_cast<int>(&in - to.group.nics.data());
  route.links = {from.to_nic(out_index), from.to_network(out_index), to.to_network(in_index) + 1,
                 to.to_nic(in_index) + 1};
  route.latency_s = out.latency_s / 2 + in.latency_s / 2;
  route.bandwidth =
      std::min({from.group.inside.bandwidth, out.bandwidth, in.bandwidth, to.group.inside.bandwidth});
  return route;
}

}  // namespace motley
