// The names of a cluster's enumerations and the one rule of its routes. No route is searched: it follows from the
// places of its ends. Read next: models/cluster/cluster_build.cpp, models/cost/network_cost.hpp.
#include "models/cluster/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/cluster_layout.hpp"
#include "models/cluster/message_cost.hpp"
#include "models/cluster/switches.hpp"
#include "models/cluster/topology.hpp"

namespace motley {
namespace {

// Place of a chip: its node and its number there.
struct Place {
  NodeLinks links;
  int chip_in_node;
};

Place place_of(const Cluster& c, int chip) {
  const std::size_t group = at(c.chip_group[at(chip)]);
  const GroupLayout& layout = c.layout[group];
  const int in_group = chip - layout.first_chip;
  const NodeGroup& g = c.groups[group];
  return {{g, layout, layout.first_link + in_group / g.chips_per_node * layout.links_per_node},
          in_group % g.chips_per_node};
}

// Appends the links between two PCIe switches of one node.
void add_pcie_path(std::vector<int>& path, const NodeLinks& links, int from, int to) {
  if (from == to) return;
  path.push_back(links.uplink(from));
  const int from_socket = links.socket_of(from), to_socket = links.socket_of(to);
  if (from_socket != to_socket) path.push_back(links.between_sockets(from_socket, to_socket));
  path.push_back(links.uplink(to) + 1);
}

// Appends the links from a chip to the network side of its port.
void add_way_out(std::vector<int>& path, const Place& from, int kind, int port) {
  const NodeLinks& links = from.links;
  if (links.group.pcie) {
    path.push_back(links.to_pcie(from.chip_in_node));
    add_pcie_path(path, links, links.switch_of(from.chip_in_node),
                  links.layout.ports[at(kind)].pcie_switch[at(port)]);
    path.push_back(links.port_to_pcie(kind, port) + 1);
  } else {
    path.push_back(links.to_port(from.chip_in_node, kind));
  }
  path.push_back(links.port_to_network(kind, port));
}

void add_way_in(std::vector<int>& path, const Place& to, int kind, int port) {
  std::vector<int> out;
  add_way_out(out, to, kind, port);
  for (auto link = out.rbegin(); link != out.rend(); ++link) path.push_back(*link ^ 1);
}

// Sums up the latency, bandwidth and rate of a route from its links.
void sum_up(const Cluster& c, Route& route) {
  route.bandwidth = route.rate = std::numeric_limits<double>::infinity();
  for (int id : route.links) {
    const LinkProperties& link = c.link_table[at(id)];
    route.latency_s += link.latency_s;
    route.bandwidth = std::min(route.bandwidth, link.bandwidth);
    route.rate = std::min(route.rate, link.bandwidth * link.efficiency);
  }
}

Route inside(const Cluster& c, const Place& from, const Place& to) {
  Route route;
  route.inside_node = true;
  const NodeLinks& links = from.links;
  if (is_star(links.group)) {
    route.links = {links.to_inside(from.chip_in_node), links.to_inside(to.chip_in_node) ^ 1};
  } else if (is_mesh(links.group.inside.kind)) {
    route.links = {links.peer(from.chip_in_node, to.chip_in_node)};
  } else {
    route.links = {links.to_pcie(from.chip_in_node)};
    add_pcie_path(route.links, links, links.switch_of(from.chip_in_node), links.switch_of(to.chip_in_node));
    route.links.push_back(links.to_pcie(to.chip_in_node) ^ 1);
  }
  sum_up(c, route);
  return route;
}

// Bytes/s that a chip far from its port reaches over it. Infinity: the chip is near its port.
double affinity_limit(const Cluster& c, const Place& end, int kind) {
  const PortLayout& ports = end.links.layout.ports[at(kind)];
  if (ports.near[at(end.chip_in_node)]) return std::numeric_limits<double>::infinity();
  std::vector<int> own;
  add_way_out(own, end, kind, ports.port_of_chip[at(end.chip_in_node)]);
  double rate = std::numeric_limits<double>::infinity();
  for (int id : own) rate = std::min(rate, c.link_table[at(id)].bandwidth * c.link_table[at(id)].efficiency);
  return rate * end.links.group.nics[at(kind)].far;
}

// The port at which a chip's flows leave its node.
struct Gate {
  int kind;  // index in the group's NICs
  int port;  // index in the ports of that kind
  int group, node, leaf;
  const NetworkLayout& network;
};

Gate gate_of(const Cluster& c, const Place& end, int chip, NicKind kind) {
  const int index = nic_index(end.links.group, kind), group = c.chip_group[at(chip)];
  const int port = end.links.layout.ports[at(index)].port_of_chip[at(end.chip_in_node)];
  const int node = c.chip_node[at(chip)];
  const NetworkLayout& network = c.network_layout[at(end.links.layout.network[at(index)])];
  return {index,  port, group, node, leaf_of(network, group, node - end.links.layout.first_node, port),
          network};
}

// Appends the links from the leaf of one end to the leaf of the other.
void add_between(const Cluster& c, std::vector<int>& path, const Gate& out, const Gate& in) {
  if (&out.network == &in.network) {
    const std::uint64_t flow =
        flow_hash(out.network, {out.node, out.port, out.leaf}, {in.node, in.port, in.leaf});
    add_switch_path(path, out.network, out.leaf, in.leaf, flow);
    return;
  }
  const std::size_t link = *joining_link(c, out.group, in.group);
  const bool there = c.links[link].from == c.groups[at(out.group)].name;
  if (out.network.exit != out.network.first_leaf) path.push_back(out.network.exits + 2 * out.leaf);
  path.push_back(c.site_link_id[link] + (there ? 0 : 1));
  if (in.network.exit != in.network.first_leaf) path.push_back(in.network.exits + 2 * in.leaf + 1);
}

// Bytes/s that sockets reach through a gate, over all NICs of its port.
double socket_limit(const Place& end, const Gate& gate) {
  const Nic& nic = end.links.group.nics[at(gate.kind)];
  if (nic.kind == NicKind::ethernet) return std::numeric_limits<double>::infinity();  // the limit of its link
  return socket_rate(nic) * end.links.layout.ports[at(gate.kind)].width[at(gate.port)];
}

double flow_limit(const Cluster& c, const Gate& out, const Gate& in) {
  if (&out.network == &in.network) return std::numeric_limits<double>::infinity();
  const double limit = c.links[*joining_link(c, out.group, in.group)].per_flow;
  return limit > 0 ? limit : std::numeric_limits<double>::infinity();
}

std::string name_of_chip(const Cluster& c, int chip) {
  return (*c.topology)[static_cast<std::uint32_t>(c.chip_vertex[at(chip)])].name;
}

// What would join two groups: a kind of NIC that both have, else Ethernet.
std::string hint_to_join(const NodeGroup& a, const NodeGroup& b) {
  const std::optional<NicKind> shared = fastest_shared_kind(a, b);
  return fmt::format("add `- {{between: [{}, {}], over: {}}}` under `links:`{}, or use fewer chips", a.name,
                     b.name, name_of(shared.value_or(NicKind::ethernet)),
                     shared ? "" : " (both need such a NIC)");
}

[[noreturn]] void refuse_unreachable(const Cluster& c, int from, int to) {
  const NodeGroup& a = c.groups[at(c.chip_group[at(from)])];
  const NodeGroup& b = c.groups[at(c.chip_group[at(to)])];
  throw Refusal(Exit::infeasible, "unreachable", {},
                fmt::format("chip {} ({}) cannot reach chip {} ({}) in cluster `{}`", from,
                            name_of_chip(c, from), to, name_of_chip(c, to), c.name),
                &a == &b ? fmt::format("give group `{}` a NIC under `nics:`", a.name) : hint_to_join(a, b));
}

}  // namespace

std::optional<NicKind> fastest_shared_kind(const NodeGroup& a, const NodeGroup& b) {
  std::optional<NicKind> fastest;
  double most = 0;
  for (const Nic& nic : a.nics)
    for (const Nic& other : b.nics) {
      const double rate = std::min(nic.count * nic.bandwidth, other.count * other.bandwidth);
      if (nic.kind != other.kind || rate <= most) continue;
      fastest = nic.kind;
      most = rate;
    }
  return fastest;
}

std::optional<NicKind> joining_kind(const Cluster& c, int from_group, int to_group) {
  const NodeGroup &a = c.groups[at(from_group)], &b = c.groups[at(to_group)];
  if (from_group == to_group) {
    if (a.nics.empty()) return std::nullopt;
    return a.nics[0].kind;
  }
  const auto link = joining_link(c, from_group, to_group);
  if (!link || nic_index(a, c.links[*link].over) < 0 || nic_index(b, c.links[*link].over) < 0)
    return std::nullopt;
  return c.links[*link].over;
}

bool are_joined(const Cluster& c, int group, int other, NicKind kind) {
  const int a = nic_index(c.groups[at(group)], kind), b = nic_index(c.groups[at(other)], kind);
  if (a < 0 || b < 0 || (group != other && !joining_link(c, group, other))) return false;
  if (c.layout[at(group)].network[at(a)] == c.layout[at(other)].network[at(b)]) return true;
  const auto link = joining_link(c, group, other);
  return link && c.links[*link].over == kind;
}

bool is_staged(const Cluster& c, int from_chip, int to_chip) {
  const int from = c.chip_group[at(from_chip)], to = c.chip_group[at(to_chip)];
  if (from == to) return false;
  const auto link = joining_link(c, from, to);
  return link && c.links[*link].staged;
}

Route host_route(const Cluster& c, int chip, bool to_host) {
  const Place from = place_of(c, chip);
  const NodeLinks& links = from.links;
  if (!links.group.host)
    throw Refusal(
        Exit::infeasible, "no-host", {},
        fmt::format("group `{}` of cluster `{}` does not say what memory its nodes have to offload to",
                    links.group.name, c.name),
        "give it `host: {memory: 1 TiB, memory_bandwidth: 200 GB/s}`, and `link: 25 GB/s` where it has no "
        "`pcie`");
  Route route;
  route.inside_node = true;
  if (links.group.host->link > 0) {
    route.links = {links.to_host(from.chip_in_node)};
  } else {
    route.links = {links.to_pcie(from.chip_in_node)};
    if (links.group.pcie->switches > 1)
      route.links.push_back(links.uplink(links.switch_of(from.chip_in_node)));
  }
  if (!to_host) {
    std::reverse(route.links.begin(), route.links.end());
    for (int& id : route.links) id ^= 1;
  }
  sum_up(c, route);
  return route;
}

// The kind of NIC that a carrier takes between two groups. Throws if they cannot communicate over it.
static NicKind kind_of(const Cluster& c, int from_chip, int to_chip, const Carrier& carrier) {
  const int from = c.chip_group[at(from_chip)], to = c.chip_group[at(to_chip)];
  const auto kind = carrier.over ? carrier.over : joining_kind(c, from, to);
  if (!kind || !are_joined(c, from, to, *kind)) refuse_unreachable(c, from_chip, to_chip);
  return *kind;
}

const Nic& joining_nic(const Cluster& c, int from_chip, int to_chip, const Carrier& carrier) {
  const NicKind kind = kind_of(c, from_chip, to_chip, carrier);
  const int from_group = c.chip_group[at(from_chip)];
  const NodeGroup& group = c.groups[at(from_group)];
  return group.nics[at(nic_index(group, kind))];
}

Route route(const Cluster& c, int from_chip, int to_chip, const Carrier& carrier) {
  Route route;
  route.inside_node = c.chip_node[at(from_chip)] == c.chip_node[at(to_chip)];
  if (from_chip == to_chip) {
    route.bandwidth = route.rate = std::numeric_limits<double>::infinity();
    return route;
  }
  const Place from = place_of(c, from_chip), to = place_of(c, to_chip);
  if (route.inside_node) return inside(c, from, to);
  const NicKind kind = kind_of(c, from_chip, to_chip, carrier);
  const Gate out = gate_of(c, from, from_chip, kind), in = gate_of(c, to, to_chip, kind);
  route.links.reserve(8);  // most routes have no more
  add_way_out(route.links, from, out.kind, out.port);
  add_between(c, route.links, out, in);
  add_way_in(route.links, to, in.kind, in.port);
  sum_up(c, route);
  route.rate = std::min({route.rate, affinity_limit(c, from, out.kind), affinity_limit(c, to, in.kind),
                         flow_limit(c, out, in)});
  if (carrier.sockets) route.rate = std::min({route.rate, socket_limit(from, out), socket_limit(to, in)});
  if (is_staged(c, from_chip, to_chip)) route.rate = std::min(route.rate, staged_rate());
  return route;
}

}  // namespace motley
