// The closed forms for an idle fabric. Other traffic is not known here: the simulator models contention. Read next:
// models/cluster/message_cost.cpp for the constants, models/cluster/cluster.cpp for routes.
#include "models/cost/network_cost.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "models/base/refusal.hpp"
#include "models/cluster/cluster_layout.hpp"
#include "models/cost/carrier.hpp"

namespace motley {
MessageCost message_cost_over(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier,
                              const Route& way) {
  const auto from = static_cast<std::size_t>(from_chip), to = static_cast<std::size_t>(to_chip);
  const NodeGroup& group = cluster.groups[static_cast<std::size_t>(cluster.chip_group[from])];
  MessageCost transport;
  if (cluster.chip_node[from] == cluster.chip_node[to]) {
    transport = inside_message_cost(group.inside.kind);
  } else {
    const Nic& nic = joining_nic(cluster, from_chip, to_chip, carrier);
    const bool tcp = carrier.sockets || is_staged(cluster, from_chip, to_chip);
    transport = tcp ? socket_message_cost() : native_message_cost(nic);
  }
  if (from_chip != to_chip) transport.efficiency = way.rate / way.bandwidth;
  return transport;
}

MessageCost message_cost_of(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier) {
  return message_cost_over(cluster, from_chip, to_chip, carrier,
                           from_chip == to_chip ? Route{} : route(cluster, from_chip, to_chip, carrier));
}

double message_overhead_s(const MessageCost& transport, const Route& route, std::int64_t bytes) {
  if (route.links.empty()) return transport.software_latency_s;
  const double wire_s = static_cast<double>(bytes) / (route.bandwidth * transport.efficiency);
  const double latency_s = route.latency_s + transport.software_latency_s;
  return transport.software_latency_s + 2 * transport.message_kappa * std::sqrt(latency_s * wire_s);
}

double message_time_s(const MessageCost& transport, const Route& route, std::int64_t bytes) {
  if (route.links.empty()) return transport.software_latency_s;
  return route.latency_s + static_cast<double>(bytes) / (route.bandwidth * transport.efficiency) +
         message_overhead_s(transport, route, bytes);
}

int members_per_node(const Program& program, const Cluster& cluster, const Group& group) {
  std::vector<std::pair<int, int>> nodes;  // nodes, and the members on each, in the group's order
  for (Rank rank : group.ranks) {
    const int chip = program.ranks[rank].chip;
    const int node = cluster.chip_node[static_cast<std::size_t>(chip)];
    if (nodes.empty() || nodes.back().first != node)
      nodes.emplace_back(node, 1);
    else
      ++nodes.back().second;
  }
  if (nodes.empty()) return 1;
  const int each = nodes[0].second;
  std::sort(nodes.begin(), nodes.end());
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].second != each || (i > 0 && nodes[i].first == nodes[i - 1].first)) return 1;
  return each;
}

namespace {

// Load of each link by the edges of the group's rings, as a share of what one member sends.
class RingLoad {
 public:
  RingLoad(const Program& program, const Cluster& cluster, const Group& group)
      : program_(program),
        cluster_(cluster),
        group_(group),
        carrier_(choose_carrier(program, cluster, group).carrier) {}

  // Adds every member's edge of that hop. The slowest edge gives latency and kappa.
  void add(const RingHop& hop, double share) {
    const std::size_t count = group_.ranks.size();
    for (std::size_t i = 0; i < count; ++i) {
      const int from = chip(i), to = chip(hop.to(i, count));
      const Route way = route(cluster_, from, to, carrier_);
      const MessageCost transport = message_cost_over(cluster_, from, to, carrier_, way);
      for (int link : way.links) on_link_[link] += share;
      s_per_byte_ = std::max(s_per_byte_, share / way.rate);
      latency_s = std::max(latency_s, way.latency_s + transport.software_latency_s);
      kappa = std::max(kappa, transport.kappa);
    }
  }
  double bandwidth() const {
    double s_per_byte = s_per_byte_;
    for (const auto& [link, share] : on_link_) {
      const LinkProperties& properties = cluster_.link_table[static_cast<std::size_t>(link)];
      s_per_byte = std::max(s_per_byte, share / (properties.bandwidth * properties.efficiency));
    }
    return 1 / s_per_byte;
  }
  double latency_s = 0, kappa = 0;

 private:
  int chip(std::size_t place) const { return program_.ranks[group_.ranks[place]].chip; }
  const Program& program_;
  const Cluster& cluster_;
  const Group& group_;
  const Carrier carrier_;
  std::map<int, double> on_link_;
  double s_per_byte_ = 0;
};

const NodeGroup& nodes_of(const Program& program, const Cluster& cluster, Rank rank) {
  const int chip = program.ranks[rank].chip;
  return cluster.groups[static_cast<std::size_t>(cluster.chip_group[static_cast<std::size_t>(chip)])];
}

// Assumes: each of the rings enters and leaves a node at one member's NIC and passes all other members in between, so
// that a member's edges inside the node carry all rings but one; in a mesh they are spread over all its links. A part
// goes round in k - 1 hops between k nodes, and all hops inside them, whose latencies differ and add up.
RingCost rings_over_nodes(const Program& program, const Cluster& cluster, const Group& group, int per_node) {
  RingCost ring;
  ring.rank_count = static_cast<int>(group.ranks.size());
  ring.rings = per_node;
  ring.hops.clear();
  const bool mesh = std::any_of(group.ranks.begin(), group.ranks.end(), [&](Rank rank) {
    return is_mesh(nodes_of(program, cluster, rank).inside.kind);
  });
  if (mesh)
    for (int ahead = 1; ahead < per_node; ++ahead) ring.hops.push_back({ahead, per_node, 1});
  else
    ring.hops.push_back({1, per_node, per_node - 1});
  RingLoad load(program, cluster, group);
  for (const RingHop& hop : ring.hops) load.add(hop, static_cast<double>(hop.parts) / per_node);
  const double inside_s = load.latency_s;
  load.latency_s = 0;
  ring.hops.push_back({per_node, 0, 1});
  load.add(ring.hops.back(), 1.0 / per_node);
  const int borders = ring.rank_count / per_node - 1;
  ring.latency_s =
      ((ring.rank_count - 1 - borders) * inside_s + borders * load.latency_s) / (ring.rank_count - 1);
  ring.kappa = load.kappa;
  ring.bandwidth = load.bandwidth();
  return ring;
}

}  // namespace

RingCost ring_cost(const Program& program, const Cluster& cluster, const Group& group) {
  RingCost ring;
  ring.rank_count = static_cast<int>(group.ranks.size());
  ring.inside_node = true;
  if (ring.rank_count < 2) return ring;
  const int per_node = members_per_node(program, cluster, group);
  if (per_node > 1 && per_node < ring.rank_count) return rings_over_nodes(program, cluster, group, per_node);
  const auto chip = [&](std::size_t i) { return program.ranks[group.ranks[i % group.ranks.size()]].chip; };
  const Carrier carrier = choose_carrier(program, cluster, group).carrier;
  std::vector<Route> routes;
  std::map<int, int> edges_on_link;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    routes.push_back(route(cluster, chip(i), chip(i + 1), carrier));
    for (int link : routes.back().links) ++edges_on_link[link];
  }
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    const MessageCost transport = message_cost_over(cluster, chip(i), chip(i + 1), carrier, routes[i]);
    int sharing = 1;
    for (int link : routes[i].links) sharing = std::max(sharing, edges_on_link[link]);
    const double bandwidth = routes[i].bandwidth * transport.efficiency / sharing;
    ring.latency_s = std::max(ring.latency_s, routes[i].latency_s + transport.software_latency_s);
    ring.bandwidth = ring.bandwidth == 0 ? bandwidth : std::min(ring.bandwidth, bandwidth);
    ring.kappa = std::max(ring.kappa, transport.kappa);
    ring.inside_node = ring.inside_node && routes[i].inside_node;
  }
  // Assumes: the rings of a mesh keep all its links busy, as RCCL's do on eight chips (0.71 of all seven links: see
  // models/cluster/message_cost.cpp). A complete graph of 4 or 6 cannot be cut into whole rings, but nearly.
  if (ring.inside_node && is_mesh(nodes_of(program, cluster, group.ranks[0]).inside.kind)) {
    ring.rings = ring.rank_count - 1;
    ring.bandwidth *= ring.rings;
  }
  return ring;
}

namespace {

// Seconds for each further message of a member that posts all its messages together, inside a node and over nodes.
// Assumes: 0.4 us for a processor that writes to shared memory, 2 us to hand a message to a NIC (design values of a
// network study, 2026-11; no published all_to_all tells the two apart).
constexpr double kNextInside_s = 0.4e-6, kNextOver_s = 2e-6;

}  // namespace

double further_messages_s(int inside, int over) {
  if (over > 0) return (over - 1) * kNextOver_s;
  return inside > 0 ? (inside - 1) * kNextInside_s : 0;
}

RingCost pairwise_cost(const Program& program, const Cluster& cluster, const Group& group,
                       const std::vector<double>& part_sizes) {
  RingCost pairs;
  pairs.rank_count = static_cast<int>(group.ranks.size());
  pairs.inside_node = true;
  if (pairs.rank_count < 2) return pairs;
  const Carrier carrier = choose_carrier(program, cluster, group).carrier;
  std::unordered_map<int, double> parts_on_link;
  double longest_s = 0, next_s = 0;  // seconds for one byte of each pair; seconds of messages after the first
  const std::size_t R = group.ranks.size();
  for (std::size_t i = 0; i < R; ++i) {
    int inside = 0, over = 0;
    for (std::size_t j = 0; j < R; ++j) {
      if (i == j) continue;
      const int from_chip = program.ranks[group.ranks[i]].chip;
      const int to_chip = program.ranks[group.ranks[j]].chip;
      const double size = part_sizes.empty() ? 1 : part_sizes[i * R + j];
      const Route way = route(cluster, from_chip, to_chip, carrier);
      const MessageCost transport = message_cost_over(cluster, from_chip, to_chip, carrier, way);
      for (int link : way.links) parts_on_link[link] += size;
      longest_s = std::max(longest_s, size / way.rate);
      pairs.latency_s = std::max(pairs.latency_s, way.latency_s + transport.software_latency_s);
      pairs.kappa = std::max(pairs.kappa, transport.kappa);
      pairs.inside_node = pairs.inside_node && way.inside_node;
      ++(way.inside_node ? inside : over);
    }
    next_s = std::max(next_s, further_messages_s(inside, over));
  }
  pairs.latency_s = (pairs.latency_s + next_s) / (pairs.rank_count - 1);
  for (const auto& [link, parts] : parts_on_link) {
    const LinkProperties& properties = cluster.link_table[static_cast<std::size_t>(link)];
    longest_s = std::max(longest_s, parts / (properties.bandwidth * properties.efficiency));
  }
  pairs.bandwidth = (pairs.rank_count - 1) / longest_s;
  return pairs;
}

int collective_steps(CollectiveKind kind, int rank_count) {
  return (kind == CollectiveKind::all_reduce ? 2 : 1) * (rank_count - 1);
}

namespace {

struct StepsCost {
  double latency_s = 0, wire_s = 0;
};
StepsCost cost_of_steps(CollectiveKind kind, const RingCost& cost, std::int64_t bytes) {
  const double steps = collective_steps(kind, cost.rank_count);
  return {steps * cost.latency_s, steps * static_cast<double>(bytes) / (cost.rank_count * cost.bandwidth)};
}

}  // namespace

double collective_overhead_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes) {
  if (cost.rank_count < 2) return 0;
  const StepsCost steps = cost_of_steps(kind, cost, bytes);
  return 2 * cost.kappa * std::sqrt(steps.latency_s * steps.wire_s);
}

double collective_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes) {
  if (cost.rank_count < 2) return 0;
  const StepsCost steps = cost_of_steps(kind, cost, bytes);
  return steps.latency_s + steps.wire_s + collective_overhead_s(kind, cost, bytes);
}

double InSwitchCost::seconds(std::int64_t bytes) const {
  const double wire_s = s_per_byte * static_cast<double>(bytes);
  return latency_s + wire_s + 2 * kappa * std::sqrt(latency_s * wire_s);
}

bool RingCost::reduces_in_switch(CollectiveKind kind, std::int64_t bytes) const {
  return kind == CollectiveKind::all_reduce && in_switch &&
         in_switch->seconds(bytes) < collective_s(kind, *this, bytes);
}

double priced_collective_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes) {
  return cost.reduces_in_switch(kind, bytes) ? cost.in_switch->seconds(bytes)
                                             : collective_s(kind, cost, bytes);
}

double ring_all_reduce_s(const RingCost& ring, std::int64_t bytes) {
  return collective_s(CollectiveKind::all_reduce, ring, bytes);
}

}  // namespace motley
