// How long messages take on an idle fabric: latency + size-dependent bandwidth; ring collectives.
#pragma once

#include <cstdint>

#include "models/cluster.hpp"
#include "models/program.hpp"
#include "models/transport.hpp"

namespace motley {

// Of one message between two chips on their route.
Transport transport_of(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier = {});

// Seconds beyond pure latency + bytes/bandwidth of the links that a message of `bytes` costs (the
// kappa term, software).
double message_overhead_s(const Transport& transport, const Route& route, std::int64_t bytes);
double message_time_s(const Transport& transport, const Route& route, std::int64_t bytes);

// A ring over the group's ranks in order: the slowest edge decides.
struct RingCost {
  int rank_count = 1;
  double latency_s = 0;  // of the slowest edge, software included
  double bandwidth =
      0;  // of the slowest edge, after efficiency, shared by the group's own edges on a common link
  double kappa = 0;
  bool inside_node = false;
  // Rings that share the payload, no two over one link: inside a full mesh as many as there are other ranks.
  // `bandwidth` is theirs together; edges from each rank to the next are those of the first.
  int rings = 1;
  bool operator==(const RingCost&) const = default;
};
RingCost ring_cost(const Program& program, const Cluster& cluster, const Group& group);
// The group's members each sending to every other at once, as an all_to_all does: the slowest latency, and the
// bandwidth with which (R-1)/R of the payload leaves each member in the time that the most loaded link needs.
RingCost pairwise_cost(const Program& program, const Cluster& cluster, const Group& group);

// Messages in turn, each of bytes/R: 2(R-1) of an all_reduce, R-1 of the others.
int collective_steps(CollectiveKind kind, int rank_count);
// steps (alpha + bytes/(R*beta)) (+ the kappa term): a ring (Patarasuk & Yuan 2009), or the pairwise exchange of an
// all_to_all, whose `cost` is pairwise_cost.
double collective_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes);
double ring_all_reduce_s(const RingCost& ring, std::int64_t bytes);

}  // namespace motley
