// One function for each algorithm. It appends its rounds to the rounds that are there, so that an all-reduce is a
// reduce-scatter and then an all-gather.
#include "models/program/collective.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "models/base/refusal.hpp"
#include "models/program/expansion.hpp"
#include "models/program/rooted.hpp"

namespace motley {
namespace {

// ---- rings: member i of `members` ends with parts[i] (reduce) or begins with parts[i]

void ring(Expansion& into, const Places& members, const std::vector<Chunks>& parts, bool reduce) {
  const int R = static_cast<int>(members.size());
  const int first =
      reduce ? 2 * R - 1 : R;  // the part that a member sends first: its predecessor's, or its own
  for (int round = 0; round + 1 < R; ++round)
    for (int i = 0; i < R; ++i)
      into.send(round, members[static_cast<std::size_t>(i)], members[static_cast<std::size_t>((i + 1) % R)],
                parts[static_cast<std::size_t>((i + first - round) % R)], reduce);
}

std::vector<Chunks> one_each(int count) {
  std::vector<Chunks> parts;
  for (int i = 0; i < count; ++i) parts.push_back({i});
  return parts;
}

void flat_ring(Expansion& into, bool reduce) {
  Places members(static_cast<std::size_t>(into.R()));
  std::iota(members.begin(), members.end(), 0);
  ring(into, members, one_each(into.R()), reduce);
  into.end_phase(into.R() - 1);
}

// ---- hierarchical: member j of node n has number n * per_node + j, and so has its chunk

void inside_rings(Expansion& into, int per_node, bool reduce) {
  const int nodes = into.R() / per_node;
  std::vector<Chunks> parts(static_cast<std::size_t>(per_node));
  for (int chunk : into.all()) parts[static_cast<std::size_t>(chunk % per_node)].push_back(chunk);
  for (int node = 0; node < nodes; ++node) {
    Places members(static_cast<std::size_t>(per_node));
    std::iota(members.begin(), members.end(), node * per_node);
    ring(into, members, parts, reduce);
  }
  into.end_phase(per_node - 1);
}

void rail_rings(Expansion& into, int per_node, bool reduce) {
  const int nodes = into.R() / per_node;
  for (int place = 0; place < per_node; ++place) {
    Places members;
    std::vector<Chunks> parts;
    for (int node = 0; node < nodes; ++node) {
      members.push_back(node * per_node + place);
      parts.push_back({members.back()});
    }
    ring(into, members, parts, reduce);
  }
  into.end_phase(nodes - 1);
}

void hierarchical(Expansion& into, CollectiveKind kind, int per_node) {
  if (kind != CollectiveKind::all_gather) {
    inside_rings(into, per_node, true);
    rail_rings(into, per_node, true);
  }
  if (kind == CollectiveKind::reduce_scatter) return;
  rail_rings(into, per_node, false);
  inside_rings(into, per_node, false);
}

// ---- all_to_all

void flat_all_to_all(Expansion& into) {
  const int R = into.R();
  for (int round = 0; round + 1 < R; ++round)
    for (int from = 0; from < R; ++from) {
      const int to = (from + round + 1) % R;
      into.send(round, from, to, {from * R + to}, false);
    }
  into.end_phase(R - 1);
}

// Each member first gathers, inside its node, the parts that the node sends along its rail; then it sends one message
// to each other node.
void hierarchical_all_to_all(Expansion& into, int per_node) {
  const int R = into.R(), nodes = R / per_node;
  for (int round = 0; round + 1 < per_node; ++round)
    for (int from = 0; from < R; ++from) {
      const int first = from / per_node * per_node, place = (from % per_node + round + 1) % per_node;
      Chunks chunks;
      for (int node = 0; node < nodes; ++node) chunks.push_back(from * R + node * per_node + place);
      into.send(round, from, first + place, chunks, false);
    }
  into.end_phase(per_node - 1);
  for (int round = 0; round + 1 < nodes; ++round)
    for (int from = 0; from < R; ++from) {
      const int first = from / per_node * per_node, to = (from + (round + 1) * per_node) % R;
      Chunks chunks;
      for (int member = first; member < first + per_node; ++member) chunks.push_back(member * R + to);
      into.send(round, from, to, chunks, false);
    }
  into.end_phase(nodes - 1);
}

// The rank that holds a token sends one copy along its rail to each node that needs the token. Inside a node each
// member that needs a token gets one copy, also of the node's own tokens. Chunks are so fine that rounding to whole
// chunks is negligible.
// Assumes: the way back, where sums go from members to rails and then to the token's rank, takes as long.
constexpr int kFine = 256;
void once_a_node(Expansion& into, const GroupShape& shape) {
  const int R = into.R(), g = shape.per_node, nodes = R / g;
  const auto count = [](double parts) { return static_cast<int>(std::lround(parts * kFine)); };
  if (nodes > 1) {
    for (int from = 0; from < R; ++from)
      for (int node = 0; node < nodes; ++node)
        if (node != from / g) into.pass(0, from, node * g + from % g, count(shape.a_node));
    into.end_phase(1);
  }
  if (g == 1) return;
  for (int from = 0; from < R; ++from)
    for (int place = 0; place < g; ++place)
      if (place != from % g) into.pass(0, from, from / g * g + place, count(nodes * shape.a_rank));
  into.end_phase(1);
}

// ---- recursive: the first P members work, P a power of two; member q also works for member P + q

class Recursive {
 public:
  explicit Recursive(Expansion& into)
      : into_(into), P_(static_cast<int>(std::bit_floor(static_cast<unsigned>(into.R())))) {}

  void run(CollectiveKind kind) {
    const bool whole = kind == CollectiveKind::all_reduce;
    if (kind != CollectiveKind::all_gather) {
      join([&](int) { return into_.all(); }, true);
      halve();
      if (!whole) part([](int extra) { return Chunks{extra}; });
    }
    if (kind == CollectiveKind::reduce_scatter) return;
    if (!whole) join([](int extra) { return Chunks{extra}; }, false);
    double_up();
    part([&](int extra) {
      Chunks chunks = into_.all();
      if (!whole) chunks.erase(chunks.begin() + extra);  // the extra member has its own chunk already
      return chunks;
    });
  }

 private:
  using ChunksOf = std::function<Chunks(int extra)>;

  void join(const ChunksOf& chunks, bool reduce) {
    for (int extra = P_; extra < into_.R(); ++extra) into_.send(0, extra, extra - P_, chunks(extra), reduce);
    if (P_ < into_.R()) into_.end_phase(1);
  }
  void part(const ChunksOf& chunks) {
    for (int extra = P_; extra < into_.R(); ++extra) into_.send(0, extra - P_, extra, chunks(extra), false);
    if (P_ < into_.R()) into_.end_phase(1);
  }
  // Chunks of the members [first, first + count) and of the members for which they work.
  Chunks block(int first, int count) const {
    Chunks chunks;
    for (int member = first; member < first + count; ++member) {
      chunks.push_back(member);
      if (member + P_ < into_.R()) chunks.push_back(member + P_);
    }
    return chunks;
  }
  void halve() {
    for (int half = P_ / 2; half >= 1; half /= 2) {
      for (int member = 0; member < P_; ++member) {
        const int partner = member ^ half;
        into_.send(0, member, partner, block(partner / half * half, half), true);
      }
      into_.end_phase(1);
    }
  }
  void double_up() {
    for (int half = 1; half < P_; half *= 2) {
      for (int member = 0; member < P_; ++member)
        into_.send(0, member, member ^ half, block(member / half * half, half), false);
      into_.end_phase(1);
    }
  }

  Expansion& into_;
  const int P_;
};

// ---- trees

void binomial_tree(Expansion& into) {
  const int R = into.R();
  const int depth = static_cast<int>(std::bit_width(static_cast<unsigned>(R - 1)));
  for (int round = 0; round < depth; ++round) {
    const int bit = 1 << round;
    for (int child = bit; child < R; child += 2 * bit) {
      into.send(round, child, child - bit, {0}, true);
      into.send(2 * depth - 1 - round, child - bit, child, {0}, false);
    }
  }
  into.end_phase(2 * depth);
}

struct Tree {
  std::vector<int> parent, height, depth;  // by member; the root's parent is -1 (none)
};

// Builds a tree over [first, first + count) in order: the left side is perfect, and its members at even places are
// leaves.
int build_tree(Tree& tree, int first, int count, int parent, int depth) {
  if (count == 0) return -1;
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(count))) - 1, root = first + left;
  const auto at = static_cast<std::size_t>(root);
  tree.parent[at] = parent;
  tree.depth[at] = depth;
  tree.height[at] = 1 + std::max(build_tree(tree, first, left, root, depth + 1),
                                 build_tree(tree, root + 1, count - left - 1, root, depth + 1));
  return tree.height[at];
}

// The second tree is the mirror image of the first, or for odd R the first tree shifted by one member: an inner
// member of one tree is a leaf of the other. A member of height h sends segment s up in round h + s; a member of
// depth d gets it back in round d - 1 + s.
void double_binary_tree(Expansion& into, int segments) {
  const auto R = static_cast<std::size_t>(into.R());
  Tree tree{Places(R), Places(R), Places(R)};
  const int depth = build_tree(tree, 0, into.R(), -1, 0);
  const int rounds = depth + segments - 1;
  const auto second = [&](int place) { return R % 2 == 0 ? into.R() - 1 - place : (place + 1) % into.R(); };
  for (std::size_t i = 0; i < R; ++i) {
    if (tree.parent[i] < 0) continue;
    const int child = static_cast<int>(i), parent = tree.parent[i];
    for (int s = 0; s < segments; ++s) {
      const int up = tree.height[i] + s, down = rounds + tree.depth[i] - 1 + s;
      into.send(up, child, parent, {s}, true);
      into.send(down, parent, child, {s}, false);
      into.send(up, second(child), second(parent), {segments + s}, true);
      into.send(down, second(parent), second(child), {segments + s}, false);
    }
  }
  if (R > 1) into.end_phase(2 * rounds);
}

// Rings inside nodes, and along each rail two trees over the nodes, without segments. NCCL's Tree has a chain inside
// each node for each of its channels, so a member's port carries as much.
void trees_over_nodes(Expansion& into, int per_node) {
  const int nodes = into.R() / per_node, shift = nodes % 2;
  const auto count = static_cast<std::size_t>(nodes);
  Tree tree{Places(count), Places(count), Places(count)};
  const int depth = build_tree(tree, 0, nodes, -1, 0);
  const auto second = [&](int node) { return shift == 0 ? nodes - 1 - node : (node + 1) % nodes; };
  inside_rings(into, per_node, true);
  for (int place = 0; place < per_node; ++place) {
    Chunks halves[2];
    for (int chunk : into.all())
      if (chunk % per_node == place) halves[chunk / into.R()].push_back(chunk);
    for (std::size_t i = 0; i < count; ++i) {
      if (tree.parent[i] < 0) continue;
      const int child = static_cast<int>(i), parent = tree.parent[i];
      const int up = tree.height[i], down = depth + tree.depth[i] - 1;
      const auto at = [&](int node) { return node * per_node + place; };
      into.send(up, at(child), at(parent), halves[0], true);
      into.send(down, at(parent), at(child), halves[0], false);
      into.send(up, at(second(child)), at(second(parent)), halves[1], true);
      into.send(down, at(second(parent)), at(second(child)), halves[1], false);
    }
  }
  into.end_phase(2 * depth);
  inside_rings(into, per_node, false);
}

// ---- in_switch: the switch takes S up and gives S/R down while it reduces, then takes S/R up and gives S down.
// NCCL's tuning gives NVLS 25 us (version 2.30, src/graph/tuning, 2026-06). A pass is a message to the next member,
// so that no port carries more than one member's part.
// Assumes: both passes take as long as the mean of their two directions.
void pass_switch(Expansion& into, int per_node, int chunks) {
  const Chunks passing(static_cast<std::size_t>(chunks), -1);
  for (int from = 0; from < into.R(); ++from) {
    const int node = from / per_node * per_node;
    into.send(0, from, node + (from - node + 1) % per_node, passing, false);
  }
  into.end_phase(1);
}

// Chunks that pass the switch are stretched, chunks between nodes are not. This many chunks make rounding negligible.
constexpr int kGrain = 64;

// Two nodes: each member sends its part, as summed on its node, to the member at the same place on the other node.
void in_switches(Expansion& into, const GroupShape& shape) {
  const Chunks crossing(static_cast<std::size_t>(std::lround(2 * kGrain / shape.in_switch)), -1);
  pass_switch(into, shape.per_node, (shape.per_node + 1) * kGrain);
  for (int from = 0; from < into.R(); ++from)
    into.send(0, from, (from + shape.per_node) % into.R(), crossing, false);
  into.end_phase(1);
  pass_switch(into, shape.per_node, (shape.per_node + 1) * kGrain);
}

void in_switch(Expansion& into, const GroupShape& shape) {
  if (shape.per_node < shape.rank_count) return in_switches(into, shape);
  pass_switch(into, shape.per_node, shape.per_node + 1);
  pass_switch(into, shape.per_node, shape.per_node + 1);
}
constexpr double kSwitchSetup_s = 25e-6;
// Ports reach 0.649, 0.629 and 0.619 of their rate with 16 GiB on two nodes of eight H100 (EFA, DGX, RoCE:
// nccl-tests, 2024), and 0.686 on one node.
constexpr double kTwoNodes = 0.633 / 0.686;

// Assumes: each half of the payload goes in eight segments whatever its size; libraries choose the number by size.
constexpr int kSegments = 8;

// Share of the most loaded link's rate that the trees reach, by NCCL's tuning (2.30, src/graph/tuning, 2026-06).
constexpr double kTreesReach = 0.92;

// DeepEP's dispatch moves 45.0 and 45.8 GB/s over each NIC of 400 Gb/s, which reaches 48 GB/s (README of
// github:deepseek-ai/DeepEP, V2, 2026: 90 GB/s over 2 nodes of eight H100, 61 over 4, tokens that stay on their node
// included).
constexpr double kDispatchReaches = 45.4 / 48;

bool gives_all(CollectiveKind kind) {  // all members do alike, and have as much before or after
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::all_gather;
}
bool is_of_parts(CollectiveKind kind) {
  return kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}
bool is_of_whole(CollectiveKind kind) { return is_rooted(kind) && !is_of_parts(kind); }

// A chain of two members has nothing to overlap.
int chunks_of_whole(CollectiveAlgorithm algorithm, const GroupShape& shape) {
  if (algorithm == CollectiveAlgorithm::tree) return 1;
  if (algorithm == CollectiveAlgorithm::ring)
    return shape.rank_count > 2 ? kSegments * (is_over_nodes(shape) ? shape.per_node : 1) : 1;
  return algorithm == CollectiveAlgorithm::hierarchical ? shape.per_node : shape.rank_count;
}

int chunks_of(CollectiveKind kind, CollectiveAlgorithm algorithm, const GroupShape& shape) {
  if (is_of_whole(kind)) return chunks_of_whole(algorithm, shape);
  if (is_of_parts(kind)) return shape.rank_count;
  if (algorithm == CollectiveAlgorithm::tree || algorithm == CollectiveAlgorithm::dissemination) return 1;
  if (algorithm == CollectiveAlgorithm::once_a_node) return kFine * shape.rank_count;
  if (algorithm == CollectiveAlgorithm::in_switch)
    return 2 * shape.per_node * (shape.per_node < shape.rank_count ? kGrain : 1);
  if (algorithm != CollectiveAlgorithm::double_binary_tree) return shape.rank_count;
  return is_over_nodes(shape) ? 2 * shape.rank_count : 2 * kSegments;
}

CollectiveSteps expand_rooted(CollectiveKind kind, CollectiveAlgorithm algorithm, const GroupShape& shape) {
  const bool recursive = algorithm == CollectiveAlgorithm::recursive;
  if (kind == CollectiveKind::gather)
    return turned_round(expand_rooted(CollectiveKind::scatter, algorithm, shape), false);
  if (kind == CollectiveKind::reduce && !recursive)
    return turned_round(expand_rooted(CollectiveKind::broadcast, algorithm, shape), true);
  Expansion expansion(shape.rank_count, chunks_of(kind, algorithm, shape));
  if (recursive && kind == CollectiveKind::reduce) {
    Recursive(expansion).run(CollectiveKind::reduce_scatter);
    gather_tree(expansion);
  } else if (recursive) {
    scatter_tree(expansion);
    Recursive(expansion).run(CollectiveKind::all_gather);
  } else if (kind == CollectiveKind::broadcast) {
    broadcast(expansion, algorithm, shape);
  } else if (algorithm == CollectiveAlgorithm::flat) {
    scatter_flat(expansion);
  } else {
    scatter_tree(expansion);
  }
  return expansion.take();
}

CollectiveSteps expand_unrooted(CollectiveKind kind, CollectiveAlgorithm algorithm, const GroupShape& shape) {
  Expansion expansion(shape.rank_count, chunks_of(kind, algorithm, shape));
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      if (kind != CollectiveKind::all_gather) flat_ring(expansion, true);
      if (kind != CollectiveKind::reduce_scatter) flat_ring(expansion, false);
      break;
    case CollectiveAlgorithm::tree:
      binomial_tree(expansion);
      break;
    case CollectiveAlgorithm::double_binary_tree:
      if (is_over_nodes(shape))
        trees_over_nodes(expansion, shape.per_node);
      else
        double_binary_tree(expansion, kSegments);
      break;
    case CollectiveAlgorithm::recursive:
      Recursive(expansion).run(kind);
      break;
    case CollectiveAlgorithm::hierarchical:
      if (kind == CollectiveKind::all_to_all)
        hierarchical_all_to_all(expansion, shape.per_node);
      else
        hierarchical(expansion, kind, shape.per_node);
      break;
    case CollectiveAlgorithm::flat:
      flat_all_to_all(expansion);
      break;
    case CollectiveAlgorithm::in_switch:
      in_switch(expansion, shape);
      break;
    case CollectiveAlgorithm::once_a_node:
      once_a_node(expansion, shape);
      break;
    case CollectiveAlgorithm::dissemination:
      barrier(expansion);
      break;
    case CollectiveAlgorithm::fastest:
    case CollectiveAlgorithm::automatic:
      break;
  }
  return expansion.take();
}

// Assumes: the segments of a chain are so short that its members send nearly all the time, as NCCL's are.
constexpr double kChainReaches = 1;
constexpr double kPostedTogether = 1;

double pipelined(CollectiveKind kind, CollectiveAlgorithm algorithm, const GroupShape& shape) {
  if (algorithm == CollectiveAlgorithm::flat) return kPostedTogether;
  if (algorithm == CollectiveAlgorithm::ring && is_rooted(kind)) return kChainReaches;
  if (algorithm == CollectiveAlgorithm::double_binary_tree && is_over_nodes(shape)) return kTreesReach;
  if (shape.per_node == shape.rank_count) return 0;
  if (algorithm == CollectiveAlgorithm::once_a_node) return kDispatchReaches;
  return algorithm == CollectiveAlgorithm::in_switch ? kTwoNodes : 0;
}

}  // namespace

bool is_over_nodes(const GroupShape& shape) {
  return shape.per_node > 1 && shape.per_node < shape.rank_count && shape.rank_count % shape.per_node == 0;
}

CollectiveTask task_of(const Collective& collective) {
  const auto& parts = collective.part_bytes;
  const bool equal = std::adjacent_find(parts.begin(), parts.end(), std::not_equal_to<>()) == parts.end();
  if (equal) return {collective.kind, collective.root};
  return {collective.kind, collective.root, parts};
}

std::int64_t payload_of(const std::vector<std::int64_t>& part_bytes, int rank_count) {
  const auto R = static_cast<std::size_t>(rank_count);
  MOTLEY_CHECK(part_bytes.size() == R * R);
  std::int64_t most = 0;
  for (std::size_t member = 0; member < R; ++member) {
    std::int64_t sent = 0, received = 0;
    for (std::size_t other = 0; other < R; ++other) {
      sent += part_bytes[member * R + other];
      received += part_bytes[other * R + member];
    }
    most = std::max({most, sent, received});
  }
  return most;
}

std::vector<double> part_sizes(const CollectiveTask& task, int rank_count) {
  std::vector<double> sizes(task.part_bytes.size(), 1.0);
  if (sizes.empty()) return sizes;
  const auto payload = static_cast<double>(payload_of(task.part_bytes, rank_count));
  for (std::size_t i = 0; payload > 0 && i < sizes.size(); ++i)
    sizes[i] = static_cast<double>(task.part_bytes[i]) * rank_count / payload;
  return sizes;
}

bool does(CollectiveAlgorithm algorithm, const CollectiveTask& task, const GroupShape& shape) {
  const CollectiveKind kind = task.kind;
  const bool exchanges = kind == CollectiveKind::all_to_all;
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
    case CollectiveAlgorithm::recursive:
      return gives_all(kind) || is_of_whole(kind);
    case CollectiveAlgorithm::tree:
      return kind == CollectiveKind::all_reduce || is_rooted(kind);
    case CollectiveAlgorithm::double_binary_tree:
      return kind == CollectiveKind::all_reduce;
    case CollectiveAlgorithm::hierarchical:
      return (gives_all(kind) || exchanges || is_of_whole(kind)) && is_over_nodes(shape);
    case CollectiveAlgorithm::in_switch:
      return kind == CollectiveKind::all_reduce && shape.in_switch > 0 && shape.rank_count > 1;
    case CollectiveAlgorithm::flat:
      return exchanges || is_of_parts(kind);
    case CollectiveAlgorithm::once_a_node:
      return exchanges && task.part_bytes.empty() && shape.a_rank > 0;
    case CollectiveAlgorithm::dissemination:
      return kind == CollectiveKind::barrier;
    case CollectiveAlgorithm::fastest:
    case CollectiveAlgorithm::automatic:
      return false;
  }
  return false;
}

CollectiveAlgorithm plain_algorithm(CollectiveKind kind) {
  if (kind == CollectiveKind::barrier) return CollectiveAlgorithm::dissemination;
  return kind == CollectiveKind::all_to_all || is_of_parts(kind) ? CollectiveAlgorithm::flat
                                                                 : CollectiveAlgorithm::ring;
}

bool needs_steps(const CollectiveTask& task, CollectiveAlgorithm algorithm) {
  if (gives_all(task.kind)) return algorithm != CollectiveAlgorithm::ring;
  return task.kind != CollectiveKind::all_to_all || algorithm != CollectiveAlgorithm::flat ||
         !task.part_bytes.empty();
}

bool joins_all(CollectiveKind kind) { return !is_rooted(kind); }

CollectiveSteps expand(const CollectiveTask& task, CollectiveAlgorithm algorithm, const GroupShape& shape) {
  MOTLEY_CHECK(shape.rank_count >= 1 && does(algorithm, task, shape));
  MOTLEY_CHECK(task.root >= 0 && task.root < shape.rank_count);
  CollectiveSteps steps = is_rooted(task.kind)
                              ? with_root(expand_rooted(task.kind, algorithm, shape), task, shape)
                              : expand_unrooted(task.kind, algorithm, shape);
  steps.chunk_sizes = part_sizes(task, shape.rank_count);
  steps.pipelined = pipelined(task.kind, algorithm, shape);
  if (algorithm != CollectiveAlgorithm::in_switch) return steps;
  steps.stretch = shape.in_switch;
  steps.setup_s = kSwitchSetup_s;
  return steps;
}

std::vector<CollectiveMessage> messages(const CollectiveSteps& steps) {
  std::vector<CollectiveMessage> all;
  for (const CollectiveStep& step : steps.steps) {
    const auto chunk = static_cast<std::size_t>(step.chunk);
    const double size = steps.chunk_sizes.empty() ? 1 : steps.chunk_sizes[chunk];
    all.push_back({step.round, step.from, step.to, step.times * size});
  }
  const auto key = [](const CollectiveMessage& message) {
    return std::tuple(message.round, message.from, message.to);
  };
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<CollectiveMessage> merged;
  for (const CollectiveMessage& each : all) {
    if (!merged.empty() && key(merged.back()) == key(each))
      merged.back().chunks += each.chunks;
    else
      merged.push_back(each);
  }
  return merged;
}

}  // namespace motley
