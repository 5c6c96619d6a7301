// Collectives as data: which member sends which chunk to which other in which round, for every algorithm. Plain lists
// that a World can perform, a test can follow by hand and models/cost prices. It knows no cluster beyond
// a group's shape, and picks no algorithm. Read next: models/cost/collective_cost.hpp.
//
//   algorithm           does                              source
//   ring                all_reduce, reduce_scatter,       Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002
//                       all_gather
//   tree                all_reduce: binomial, to member   Thakur, Rabenseifner & Gropp 2005,
//                       0 and back                        doi:10.1177/1094342005051521
//   double_binary_tree  all_reduce: half of it over each  Sanders, Speck & Traff 2009,
//                       of two trees, in segments         doi:10.1016/j.parco.2009.09.001; over nodes rings inside
//                                                         them and two trees a rail, as NCCL's Tree
//   recursive           all_reduce, reduce_scatter        Thakur, Rabenseifner & Gropp 2005: halving, doubling; what is
//                       (halving), all_gather (doubling)  beyond a power of two joins a partner before and after
//   hierarchical        all four: rings (of an            rings inside nodes and along rails; all_to_all inside nodes
//                       all_to_all: pairs) inside nodes   first, so that one message a rail carries a node's parts
//                       and then along rails
//   in_switch           all_reduce: each member's port     Klenk et al. 2020, doi:10.1109/ISCA45697.2020.00085; NCCL's
//                       carries S(1+1/R) each way          NVLS; of two nodes its NVLSTree, whose members exchange
//                                                          S/g between the two passes, g of them on each node
//   flat                all_to_all: pairwise exchange     Thakur, Rabenseifner & Gropp 2005
//   once_a_node         all_to_all of routed tokens:      DeepEP's normal kernels (github:deepseek-ai/DeepEP): one
//                       along rails, then inside nodes    copy a node along the rail, forwarded there to who needs it
#pragma once

#include <string_view>
#include <vector>

#include "models/base/words.hpp"
#include "models/program/program.hpp"

namespace motley {

enum class CollectiveLevel : std::uint8_t { formula, fluid, expanded };
template <>
inline constexpr auto kWords<CollectiveLevel> = words("formula", "fluid", "expanded");

// models/program/collective.hpp says what each is; of the last two it picks among the others: `fastest` what should
// take least by models/cost/collective_cost.hpp, `automatic` what NCCL would take.
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
  once_a_node  // nobody asks for it: see ExpertCopies
};
template <>
inline constexpr auto kWords<CollectiveAlgorithm> = words("ring", "tree", "double_binary_tree", "recursive",
                                                          "hierarchical", "in_switch", "flat", "fastest",
                                                          "automatic", "once_a_node");

struct CollectiveStep {
  int round = 0;         // a member begins a round when its part in the one before has ended
  int from = 0, to = 0;  // places in the group
  int chunk = 0;         // of an all_to_all: i * R + j is part j of member i; in_switch: -1, no member's
  bool reduce = false;   // added to what `to` holds of it; else it replaces that
  int times = 1;         // so many chunks as large
  bool operator==(const CollectiveStep&) const = default;
};

struct CollectiveSteps {
  int rank_count = 1;
  int rounds = 0;
  int chunks = 1;      // that the payload of a member is cut into, all equal
  double stretch = 1;  // bytes on the wire for each of a chunk
  double setup_s = 0;  // before the first round
  // Rounds follow each other segment by segment, and reach this share of what the most loaded link could do alone. 0: a
  // round begins when the one before has ended.
  double pipelined = 0;
  std::vector<CollectiveStep> steps;                                          // by round
  double share(int of_chunks) const { return of_chunks * stretch / chunks; }  // wire bytes a byte of payload
};

// All that the algorithms know of a group.
struct GroupShape {
  int rank_count = 1;
  int per_node = 1;  // its members stand node by node, so many on each; 1: they do not
  double in_switch =
      0;  // wire bytes that count as one when a switch that joins all members reduces; 0: none does
  // Of once_a_node, what a member sends each node and each member that has experts of a token, in parts of an even
  // all_to_all (R of them its payload); 0: of others.
  double a_node = 0, a_rank = 0;
  auto operator<=>(const GroupShape&) const = default;
};

// Everything that goes from one member to another in one round.
struct CollectiveMessage {
  int round = 0, from = 0, to = 0;
  int chunks = 0;
  bool operator==(const CollectiveMessage&) const = default;
};

// Hierarchical needs more than one node and member a node.
bool does(CollectiveAlgorithm algorithm, CollectiveKind kind, const GroupShape& shape);
// Ring, or flat.
CollectiveAlgorithm plain_algorithm(CollectiveKind kind);
// Asked only for what it does().
CollectiveSteps expand(CollectiveKind kind, CollectiveAlgorithm algorithm, const GroupShape& shape);
std::vector<CollectiveMessage> messages(const CollectiveSteps& steps);  // by round, sender and receiver

}  // namespace motley
