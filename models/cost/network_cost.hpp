// Times of messages and of ring collectives on an idle fabric: latency plus bytes over a size-dependent bandwidth.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/cluster/message_cost.hpp"
#include "models/program/program.hpp"

namespace motley {

// The cost of one message between two chips on their route.
MessageCost message_cost_of(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier = {});
// The same for whoever has their route already, as deriving it takes most of the time.
MessageCost message_cost_over(const Cluster& cluster, int from_chip, int to_chip, const Carrier& carrier,
                              const Route& way);

// Seconds of a message of `bytes` beyond latency + bytes/bandwidth of its links (the kappa term, software).
double message_overhead_s(const MessageCost& transport, const Route& route, std::int64_t bytes);
double message_time_s(const MessageCost& transport, const Route& route, std::int64_t bytes);

// Number of members on each node, if they stand node by node with equally many on each; 1 if they do not.
int members_per_node(const Program& program, const Cluster& cluster, const Group& group);

// The member to which each member of a ring sends: `ahead` places on, around the group or around its own node.
struct RingHop {
  int ahead = 1;
  int around = 0;  // 0: around the group; else around its node of this many members
  int parts = 1;   // number of RingCost::rings equal parts that a member sends over this hop in a step
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

// The time of an all_reduce in a switch that reduces: latency_s + bytes s_per_byte (+ the kappa term).
struct InSwitchCost {
  double latency_s = 0, s_per_byte = 0, kappa = 0;
  double seconds(std::int64_t bytes) const;
  bool operator==(const InSwitchCost&) const = default;
};

// A ring over the group's ranks in order; the slowest edge decides. If several members stand on each of several
// nodes, there is one ring for each member of a node: all go round the node in the same way, and each leaves it at
// another member's NIC.
struct RingCost {
  int rank_count = 1;
  double latency_s =
      0;  // a step over the slowest edge, with software; for rings over nodes the mean of all edges
  double bandwidth =
      0;  // of the slowest edge, after efficiency, shared by the group's edges on a common link
  double kappa = 0;
  bool inside_node = false;
  // Number of rings that share the payload, and `bandwidth` is that of all together. Inside a full mesh there is a
  // ring for each other rank, no two over one link, and `hops` are those of the first ring; over nodes there is a
  // ring for each member of a node.
  int rings = 1;
  std::vector<RingHop> hops = std::vector<RingHop>(1);
  // Tensor-parallel groups: what an all_reduce takes in the switch that joins them, if it reduces.
  std::optional<InSwitchCost> in_switch = {};
  bool over_nodes() const { return hops.size() > 1; }
  // Whether an all_reduce of that many bytes goes through the switch.
  // Assumes: the library takes the faster way. NCCL's own estimates (models/cost/nccl_tuning.hpp) choose rings on up to
  // 4 H200, where the two are 3 % apart.
  bool reduces_in_switch(CollectiveKind kind, std::int64_t bytes) const;
  bool operator==(const RingCost&) const = default;
};
RingCost ring_cost(const Program& program, const Cluster& cluster, const Group& group);
// The cost if all members send to every other at once, as in an all_to_all. `bandwidth` is that with which (R-1)/R of
// the payload leaves each member in the time that the most loaded link needs. `latency_s` is the mean over R-1 steps:
// that of the slowest message, and what further messages add at a sender that posts all together, as NCCL's groups
// do. `part_sizes`: see models/program/collective.hpp; then (R-1)/R of the payload stands for all that is exchanged.
RingCost pairwise_cost(const Program& program, const Cluster& cluster, const Group& group,
                       const std::vector<double>& part_sizes = {});
// Seconds that a member takes to post its messages after the first, to `inside` members on its node and `over` on other
// nodes.
double further_messages_s(int inside, int over);

// Number of consecutive messages, each of bytes/R: 2(R-1) in an all_reduce, R-1 in other kinds.
int collective_steps(CollectiveKind kind, int rank_count);
// Returns steps (alpha + bytes/(R*beta)) (+ the kappa term): a ring (Patarasuk & Yuan 2009), or the pairwise exchange
// of an all_to_all, whose `cost` is pairwise_cost().
double collective_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes);
// The kappa term alone.
double collective_overhead_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes);
// Seconds of a collective that is priced inside computes: the ring, or the switch where that is faster.
double priced_collective_s(CollectiveKind kind, const RingCost& cost, std::int64_t bytes);
double ring_all_reduce_s(const RingCost& ring, std::int64_t bytes);

}  // namespace motley
