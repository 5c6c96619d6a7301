// How long messages take on an idle fabric: latency + size-dependent bandwidth; ring collectives.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/cluster/message_cost.hpp"
#include "models/program/program.hpp"

namespace motley {

// Of one message between two chips on their route.
MessageCost message_cost_of(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier = {});

// Seconds beyond pure latency + bytes/bandwidth of the links that a message of `bytes` costs (the
// kappa term, software).
double message_overhead_s(const MessageCost& transport, const Route& route, std::int64_t bytes);
double message_time_s(const MessageCost& transport, const Route& route, std::int64_t bytes);

// Members a node when they stand node by node, as many on each; else 1.
int members_per_node(const Program& program, const Cluster& cluster, const Group& group);

// Where a member of a ring sends: so many places on, around the group, or around its own node.
struct RingHop {
  int ahead = 1;
  int around = 0;  // 0: the group; else its node of so many members
  int parts = 1;   // of what a member sends in a step, cut into RingCost::rings
  std::size_t to(std::size_t place, std::size_t count) const { return on(place, ahead, count); }
  std::size_t from(std::size_t place, std::size_t count) const { return on(place, -ahead, count); }
  bool operator==(const RingHop&) const = default;

 private:
  std::size_t on(std::size_t place, int away, std::size_t count) const {
    const auto size = around > 0 ? static_cast<std::size_t>(around) : count;
    const auto moved = static_cast<std::ptrdiff_t>(place % size) + away + static_cast<std::ptrdiff_t>(size);
    return place / size * size + static_cast<std::size_t>(moved) % size;
  }
};

// A ring over the group's ranks in order: the slowest edge decides. Where several stand on each of several nodes there
// is one for each of a node's: they go round inside alike, and leave the node at another member's NIC each.
struct RingCost {
  int rank_count = 1;
  double latency_s =
      0;  // a step: of the slowest edge, software included; of rings over nodes the mean of all edges
  double bandwidth =
      0;  // of the slowest edge, after efficiency, shared by the group's own edges on a common link
  double kappa = 0;
  bool inside_node = false;
  // Rings that share the payload: inside a full mesh as many as there are other ranks, no two over one link, and
  // `hops` are those of the first; over nodes as many as a node has members. `bandwidth` is theirs together.
  int rings = 1;
  std::vector<RingHop> hops = std::vector<RingHop>(1);
  bool over_nodes() const { return hops.size() > 1; }
  bool operator==(const RingCost&) const = default;
};
RingCost ring_cost(const Program& program, const Cluster& cluster, const Group& group);
// The group's members each sending to every other at once, as an all_to_all does: the bandwidth with which (R-1)/R of
// the payload leaves each member in the time that the most loaded link needs; and of R-1 steps the mean latency, the
// slowest message's and what each further one adds at a sender that posts them together, as NCCL's groups do.
RingCost pairwise_cost(const Program& program, const Cluster& cluster, const Group& group);

// Messages in turn, each of bytes/R: 2(R-1) of an all_reduce, R-1 of the others.
int collective_steps(CollectiveKind kind, int rank_count);
// steps (alpha + bytes/(R*beta)) (+ the kappa term): a ring (Patarasuk & Yuan 2009), or the pairwise exchange of an
// all_to_all, whose `cost` is pairwise_cost.
double collective_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes);
double ring_all_reduce_s(const RingCost& ring, std::int64_t bytes);

}  // namespace motley
