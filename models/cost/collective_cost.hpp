// The time that each algorithm of a collective takes on an idle fabric, and the choice of an algorithm. A round takes
// the latency and the wire time of its slowest message; messages of one round share their links evenly, and rounds
// add up. So a time is latency_s + bytes * s_per_byte (+ the kappa term). If all members reach each other alike, with
// alpha and beta, the time for R members, S bytes, D = floor(log2 R) is:
//
//   ring                all_reduce 2(R-1)(alpha + S/(R beta)); reduce_scatter and all_gather half of it
//   tree                2 ceil(log2 R)(alpha + S/beta)
//   double_binary_tree  at most 2(D+K-1)(alpha + S/(K beta)) with K = 8 segments, equal for R = 2^k - 1; over k
//                       nodes 2(g-1) alpha + at most 2 (floor(log2 k) + 1) alpha', and 0.92 of the links' rate
//   recursive           R = 2^k: all_reduce 2 D alpha + 2 (R-1)/R S/beta; the others half of it
//   hierarchical        rings twice: g members inside a node over S, R/g along rails over S/g (all_to_all: over S)
//   in_switch           25 us + 2 alpha + S(1+1/R)/beta, with beta of a switch that reduces; on two nodes R is one
//                       node's members, with 3 alpha, and 0.92 of beta, or S/R between the nodes if that takes longer
//   flat                all_to_all: alpha + 0.4 us (R-2) + (R-1)/R S/beta, since messages are posted together; gather
//                       and scatter the same
//   dissemination       ceil(log2 R) alpha
//   once_a_node         alpha + alpha', and 0.95 of the links' rate for what GroupShape says each carries
//
// Broadcast and reduce over R members, which are k nodes of g; gather and scatter by tree:
//
//   ring                (R+6) alpha + S/beta with 8 segments, two members alpha + S/beta; over nodes S/beta or
//                       S/(g beta'), whichever takes longer
//   tree                ceil(log2 R)(alpha + S/beta); gather and scatter ceil(log2 R) alpha + (R-1)/R S/beta
//   recursive           R = 2^k: 2 D alpha + 2 (R-1)/R S/beta
//   hierarchical        g alpha + 2 (g-1)/g S/beta inside nodes, ceil(log2 k)(alpha' + S/(g beta')) along rails
//
// The parts of an all_to_all may be unlike: then the most loaded link decides.
//
// Other traffic and compute are not known here. Read next: models/program/collective.hpp,
// models/cost/nccl_tuning.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/cost/network_cost.hpp"
#include "models/program/collective.hpp"

namespace motley {

struct CollectiveCost {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  double latency_s = 0;
  double s_per_byte = 0;  // seconds for each byte of the payload
  double kappa = 0;
  // Seconds that the most loaded link needs in all rounds: no order of the messages takes less.
  double least_s_per_byte = 0;
  double seconds(std::int64_t bytes) const;
  double overhead_s(std::int64_t bytes) const;  // the kappa term alone
};

GroupShape shape_of(const Program& program, const Cluster& cluster, const Group& group);

// The ring of a group. That of a tensor-parallel group knows the switch, too: libraries reduce there (NCCL's NVLS,
// since 2.17 of 2023-02, on Hopper and later).
// Assumes: no software for such chips has an older library.
RingCost ring_or_switch_cost(const Program& program, const Cluster& cluster, const Group& group);

// The cost of an algorithm that can do the collective on this group.
CollectiveCost collective_cost(const Program& program, const Cluster& cluster, const Group& group,
                               const CollectiveTask& task, CollectiveAlgorithm algorithm);
// The costs of every algorithm that can do the collective on this group, the plain one first.
std::vector<CollectiveCost> collective_costs(const Program& program, const Cluster& cluster,
                                             const Group& group, const CollectiveTask& task);
// The first algorithm that takes least.
CollectiveAlgorithm fastest(const std::vector<CollectiveCost>& costs, std::int64_t bytes);
// Returns a line such as "tree: 20 us, as asked for; there are ring (70 us), recursive (30 us)".
std::string explain(const std::vector<CollectiveCost>& costs, CollectiveAlgorithm chosen,
                    CollectiveAlgorithm wanted, std::int64_t bytes);

}  // namespace motley
