// What each algorithm of a collective takes on an idle fabric, and which to choose. A round takes the latency and the
// wire time of its slowest message, messages of one round sharing their links evenly; rounds add up. So a time is
// latency_s + bytes * s_per_byte (+ the kappa term). Where all members reach each other alike, at alpha and beta, that
// is for R members, S bytes, D = floor(log2 R):
//
//   ring                all_reduce 2(R-1)(alpha + S/(R beta)); half of it reduce_scatter, all_gather
//   tree                2 ceil(log2 R)(alpha + S/beta)
//   double_binary_tree  at most 2(D+K-1)(alpha + S/(K beta)) with K = 8 segments; exactly where R = 2^k - 1; over k
//                       nodes 2(g-1) alpha + 2 (floor(log2 k) + 1 or less) alpha', and 0.92 of what links can do
//   recursive           R = 2^k: all_reduce 2 D alpha + 2 (R-1)/R S/beta; half of it the others
//   hierarchical        the same twice: g members inside a node over S, R/g along rails over S/g (all_to_all: over S)
//   in_switch           25 us + 2 alpha + S(1+1/R)/beta, beta that of a switch that reduces; of two nodes R is that of
//                       one, 3 alpha, and 0.92 of beta, or of S/R between them where that is more
//   flat                (R-1)(alpha + S/(R beta))
//   once_a_node         alpha + alpha', and 0.95 of what links can do with what GroupShape says each carries
//
// It knows nothing of other traffic and of compute. Read next: models/program/collective.hpp,
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
  double s_per_byte = 0;  // of the payload
  double kappa = 0;
  // What the most loaded link needs for all rounds: no order of the messages can be sooner.
  double least_s_per_byte = 0;
  double seconds(std::int64_t bytes) const;
};

GroupShape shape_of(const Program& program, const Cluster& cluster, const Group& group);

// Of one that is done on this group.
CollectiveCost collective_cost(const Program& program, const Cluster& cluster, const Group& group,
                               CollectiveKind kind, CollectiveAlgorithm algorithm);
// Of every algorithm that does it on this group, the plain one first.
std::vector<CollectiveCost> collective_costs(const Program& program, const Cluster& cluster,
                                             const Group& group, CollectiveKind kind);
// The first that takes least.
CollectiveAlgorithm fastest(const std::vector<CollectiveCost>& costs, std::int64_t bytes);
// "tree: 20 us, as asked for; there are ring (70 us), recursive (30 us)"
std::string explain(const std::vector<CollectiveCost>& costs, CollectiveAlgorithm chosen,
                    CollectiveAlgorithm wanted, std::int64_t bytes);

}  // namespace motley
