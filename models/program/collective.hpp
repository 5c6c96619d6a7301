// Collectives as data: for every algorithm, which member sends which chunk to which member in which round. They are
// plain lists that a World can perform, a test can follow by hand and models/cost prices. They know no cluster beyond
// a group's shape, and nothing here chooses an algorithm. Read next: models/cost/collective_cost.hpp.
//
//   algorithm           does                              source
//   ring                all_reduce, reduce_scatter,       Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002;
//                       all_gather; broadcast, reduce     broadcast and reduce, as NCCL's, a chain of segments, which
//                                                         begins or ends at the root; over nodes one for each NIC
//   tree                all_reduce: binomial, to member   Thakur, Rabenseifner & Gropp 2005,
//                       0 and back; broadcast, reduce,    doi:10.1177/1094342005051521
//                       gather, scatter: one way
//   double_binary_tree  all_reduce: one half over each    Sanders, Speck & Traff 2009,
//                       of two trees, in segments         doi:10.1016/j.parco.2009.09.001; over nodes: rings inside
//                                                         them and two trees for each rail, as NCCL's Tree
//   recursive           all_reduce, reduce_scatter        Thakur, Rabenseifner & Gropp 2005: halving, doubling; members
//                       (halving), all_gather (doubling)  beyond a power of two join a partner before and after;
//                       broadcast, reduce                 broadcast: scatter by tree, all_gather (van de Geijn's);
//                                                         reduce: reduce_scatter, gather by tree (Rabenseifner's)
//   hierarchical        these four: rings (all_to_all:    rings inside nodes and along rails; all_to_all inside nodes
//                       pairs) inside nodes and then      first, so that one message on a rail carries a node's parts
//                       along rails; broadcast, reduce    broadcast: the root's node shares it out, trees carry it
//                                                         along rails, rings inside nodes put it together
//   in_switch           all_reduce: each member's port    Klenk et al. 2020, doi:10.1109/ISCA45697.2020.00085; NCCL's
//                       carries S(1+1/R) each way         NVLS; over two nodes its NVLSTree, whose members exchange
//                                                         S/g between the two passes, with g members on each node
//   flat                all_to_all: pairwise exchange;    Thakur, Rabenseifner & Gropp 2005
//                       gather, scatter: root with each
//   dissemination       barrier: ceil(log2 R) rounds of   Hensgen, Finkel & Manber 1988, doi:10.1007/BF01379320
//                       messages without bytes
//   once_a_node         all_to_all of routed tokens:      DeepEP's normal kernels (github:deepseek-ai/DeepEP): one
//                       along rails, then inside nodes    copy to each node along the rail, forwarded to its members
//
// A reduce is its broadcast turned round (all but the recursive one), a gather its scatter. The lists are written for a
// root at place 0; for another root all places are rotated, nodes and places inside nodes alike.
#pragma once

#include <string_view>
#include <utility>
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
  once_a_node,   // not chosen by a scenario: see ExpertCopies
  dissemination  // the only one that does a barrier
};
template <>
inline constexpr auto kWords<CollectiveAlgorithm> = words("ring", "tree", "double_binary_tree", "recursive",
                                                          "hierarchical", "in_switch", "flat", "fastest",
                                                          "automatic", "once_a_node", "dissemination");

// What a collective does, beside its payload and its group. A kind alone has its root at place 0, and equal parts.
struct CollectiveTask {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int root = 0;
  std::vector<std::int64_t> part_bytes;  // as Collective::part_bytes
  CollectiveTask(CollectiveKind its_kind = CollectiveKind::all_reduce, int its_root = 0,
                 std::vector<std::int64_t> its_parts = {})
      : kind(its_kind), root(its_root), part_bytes(std::move(its_parts)) {}
  auto operator<=>(const CollectiveTask&) const = default;
};
// The task has no part_bytes where all parts are equal.
CollectiveTask task_of(const Collective& collective);
// The payload of an all_to_all of unlike parts: the most that one member sends or receives, its own part included.
std::int64_t payload_of(const std::vector<std::int64_t>& part_bytes, int rank_count);
// The size of each part, where 1 is that of each of R equal parts; empty: all are equal.
std::vector<double> part_sizes(const CollectiveTask& task, int rank_count);

struct CollectiveStep {
  int round = 0;         // a member begins a round when its part of the round before has ended
  int from = 0, to = 0;  // places in the group
  int chunk = 0;  // number of the chunk; all_to_all: i * R + j is part j of member i; gather, scatter: part
                  // of that member; -1: of no member (in_switch, once_a_node, dissemination)
  bool reduce = false;  // true: the chunk is added to the one that `to` holds; false: it replaces that chunk
  int times = 1;        // number of chunks of this size; 0: the message has no bytes
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
  // 1 with flat: all messages are posted together.
  double pipelined = 0;
  std::vector<double> chunk_sizes;    // size of each chunk, in equal chunks; empty: all are equal
  std::vector<CollectiveStep> steps;  // sorted by round
  // Bytes on the wire for each byte of payload, for so many equal chunks.
  double share(double of_chunks) const { return of_chunks * stretch / chunks; }
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
  double chunks = 0;  // their size in equal chunks
  bool operator==(const CollectiveMessage&) const = default;
};

// Whether there are several nodes with several members each.
bool is_over_nodes(const GroupShape& shape);
// Whether the algorithm can do this on such a group. Hierarchical needs a group over nodes.
bool does(CollectiveAlgorithm algorithm, const CollectiveTask& task, const GroupShape& shape);
// Returns flat for all_to_all, gather and scatter, dissemination for a barrier, ring for other kinds.
CollectiveAlgorithm plain_algorithm(CollectiveKind kind);
// Whether pricing and simulating it need the list of its steps. Rings in which all members do alike, and exchanges of
// equal parts, have closed forms instead.
bool needs_steps(const CollectiveTask& task, CollectiveAlgorithm algorithm);
// Whether each member needs something from each other one, so that none ends before all have begun.
bool joins_all(CollectiveKind kind);
// Lists the steps of a collective. The algorithm must be one that does() it.
CollectiveSteps expand(const CollectiveTask& task, CollectiveAlgorithm algorithm, const GroupShape& shape);
std::vector<CollectiveMessage> messages(const CollectiveSteps& steps);  // sorted by round, sender and
                                                                        // receiver

}  // namespace motley
