// Collectives as data: for every algorithm, which member sends which chunk to which member in which round. They are
// plain lists that a World can perform, a test can follow by hand and models/cost prices. They know no cluster beyond
// a group's shape, and nothing here chooses an algorithm. Read next: models/cost/collective_cost.hpp.
//
//   algorithm           does                              source
//   ring                all_reduce, reduce_scatter,       Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002
//                       all_gather
//   tree                all_reduce: binomial, to member   Thakur, Rabenseifner & Gropp 2005,
//                       0 and back                        doi:10.1177/1094342005051521
//   double_binary_tree  all_reduce: one half over each    Sanders, Speck & Traff 2009,
//                       of two trees, in segments         doi:10.1016/j.parco.2009.09.001; over nodes: rings inside
//                                                         them and two trees for each rail, as NCCL's Tree
//   recursive           all_reduce, reduce_scatter        Thakur, Rabenseifner & Gropp 2005: halving, doubling; members
//                       (halving), all_gather (doubling)  beyond a power of two join a partner before and after
//   hierarchical        all four: rings (all_to_all:      rings inside nodes and along rails; all_to_all inside nodes
//                       pairs) inside nodes and then      first, so that one message on a rail carries a node's parts
//                       along rails
//   in_switch           all_reduce: each member's port    Klenk et al. 2020, doi:10.1109/ISCA45697.2020.00085; NCCL's
//                       carries S(1+1/R) each way         NVLS; over two nodes its NVLSTree, whose members exchange
//                                                         S/g between the two passes, with g members on each node
//   flat                all_to_all: pairwise exchange     Thakur, Rabenseifner & Gropp 2005
//   once_a_node         all_to_all of routed tokens:      DeepEP's normal kernels (github:deepseek-ai/DeepEP): one
//                       along rails, then inside nodes    copy to each node along the rail, forwarded to its members
#pragma once

#include <string_view>
#include <vector>

#include "models/base/words.hpp"
#include "models/program/program.hpp"

namespace motley {

enum class CollectiveLevel : std::uint8_t { formula, fluid, expanded };
template <>
inline constexpr auto kWords<CollectiveLevel> = words("formula", "fluid", "expanded");

// The table above describes the algorithms. `fastest` and `automatic` choose among them: `fastest` the one that takes
// least by models/cost/collective_cost.hpp, `automatic` the one that NCCL would choose.
enum class CollectiveAlgorithm : std::uint8_t {
  ring,
  tree,
  double_binary_tree,
  recursive,
  hierarchical,
  in_switch,
  flat,
  fastest,
  automatic,
  once_a_node  // not chosen by a scenario: see ExpertCopies
};
template <>
inline constexpr auto kWords<CollectiveAlgorithm> = words("ring", "tree", "double_binary_tree", "recursive",
                                                          "hierarchical", "in_switch", "flat", "fastest",
                                                          "automatic", "once_a_node");

struct CollectiveStep {
  int round = 0;         // a member begins a round when its part of the round before has ended
  int from = 0, to = 0;  // places in the group
  int chunk = 0;         // number of the chunk; all_to_all: i * R + j is part j of member i; -1: of no member
                         // (in_switch, once_a_node)
  bool reduce = false;   // true: the chunk is added to the one that `to` holds; false: it replaces that chunk
  int times = 1;         // number of chunks of this size
  bool operator==(const CollectiveStep&) const = default;
};

struct CollectiveSteps {
  int rank_count = 1;
  int rounds = 0;
  int chunks = 1;      // number of equal chunks into which a member's payload is cut
  double stretch = 1;  // bytes on the wire for each byte of a chunk
  double setup_s = 0;  // seconds before the first round
  // Share of what the most loaded link could do alone, if rounds follow each other segment by segment. 0: a round
  // begins when the round before has ended.
  double pipelined = 0;
  std::vector<CollectiveStep> steps;  // sorted by round
  // Bytes on the wire for each byte of payload.
  double share(int of_chunks) const { return of_chunks * stretch / chunks; }
};

// What the algorithms know of a group.
struct GroupShape {
  int rank_count = 1;
  int per_node = 1;  // members on each node, which stand node by node; 1: they do not stand so
  double in_switch =
      0;  // bytes on the wire for each byte when a switch that joins all members reduces; 0: no switch does
  // once_a_node: what a member sends to each node and to each member that has experts of a token, in parts of an even
  // all_to_all (R parts are its payload). 0: the group is not for once_a_node.
  double a_node = 0, a_rank = 0;
  auto operator<=>(const GroupShape&) const = default;
};

// All chunks that one member sends to another in one round.
struct CollectiveMessage {
  int round = 0, from = 0, to = 0;
  int chunks = 0;
  bool operator==(const CollectiveMessage&) const = default;
};

// Whether the algorithm can do this kind on such a group. Hierarchical needs several nodes with several members each.
bool does(CollectiveAlgorithm algorithm, CollectiveKind kind, const GroupShape& shape);
// Returns flat for all_to_all, ring for other kinds.
CollectiveAlgorithm plain_algorithm(CollectiveKind kind);
// Lists the steps of a collective. The algorithm must be one that does() it.
CollectiveSteps expand(CollectiveKind kind, CollectiveAlgorithm algorithm, const GroupShape& shape);
std::vector<CollectiveMessage> messages(const CollectiveSteps& steps);  // sorted by round, sender and
                                                                        // receiver

}  // namespace motley
