#include "models/program/rooted.hpp"

#include <bit>
#include <functional>

namespace motley {
namespace {

// Number of rounds in which one member can reach `count` members, itself included: ceil(log2 count).
int rounds_to_reach(int count) { return static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1))); }

// Down a binomial tree over `members`, or up it. `chunks`: those between a child, given by its index in `members`, and
// its parent; `span` members are below the child, itself included, if there are so many.
void binomial(Expansion& into, const Places& members, bool down,
              const std::function<Chunks(int child, int span)>& chunks) {
  const int count = static_cast<int>(members.size()), depth = rounds_to_reach(count);
  const auto place = [&](int i) { return members[static_cast<std::size_t>(i)]; };
  for (int level = 0; level < depth; ++level) {
    const int span = 1 << (depth - 1 - level);
    for (int child = span; child < count; child += 2 * span) {
      const int parent = child - span;
      if (down)
        into.send(level, place(parent), place(child), chunks(child, span), false);
      else
        into.send(depth - 1 - level, place(child), place(parent), chunks(child, span), false);
    }
  }
}

Places everyone(const Expansion& into) {
  Places members(static_cast<std::size_t>(into.R()));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

void parts_by_tree(Expansion& into, bool down) {
  binomial(into, everyone(into), down, [&](int child, int span) {
    Chunks chunks(static_cast<std::size_t>(std::min(span, into.R() - child)));
    std::iota(chunks.begin(), chunks.end(), child);
    return chunks;
  });
  into.end_phase(rounds_to_reach(into.R()));
}

// Segment s leaves member i in round i + s.
void chain(Expansion& into) {
  if (into.R() == 1) return;
  const Chunks segments = into.all();
  for (int member = 0; member + 1 < into.R(); ++member)
    for (int s : segments) into.send(member + s, member, member + 1, {s}, false);
  into.end_phase(into.R() - 2 + static_cast<int>(segments.size()));
}

// One chain for each member of a node, each with its share of the segments. Chain c leaves the root's node at member c,
// after it has passed all others, and enters and leaves each further node at another member's NIC. Chain 0 leaves at
// the root itself, which also sends it round its node.
void chains_over_nodes(Expansion& into, int per_node) {
  const int nodes = into.R() / per_node, segments = static_cast<int>(into.all().size()) / per_node;
  for (int c = 0; c < per_node; ++c) {
    const auto link = [&](int from, int to, int before) {  // `before`: how many links lead to `from`
      for (int s = 0; s < segments; ++s) into.send(before + s, from, to, {c * segments + s}, false);
    };
    int last = 0, links = 0;
    for (int i = 1; i <= per_node; ++i)
      if (const int place = (c + i) % per_node; place != 0) link(std::exchange(last, place), place, links++);
    if (c == 0) links = 0;
    for (int node = 1, place = c; node < nodes; ++node) {
      const int first = node * per_node;
      link(first - per_node + place, first + place, links++);
      for (int i = 1; i < per_node; ++i) {
        const int next = (place + 1) % per_node;
        link(first + std::exchange(place, next), first + next, links++);
      }
    }
  }
  into.end_phase(into.R() - 2 + segments);
}

// The root gives each member of its node one part. Each of them passes it along its rail by a binomial tree, and then
// the members of each node pass their parts round. Nobody sends to the root, which has all.
void over_nodes(Expansion& into, int per_node) {
  const int nodes = into.R() / per_node;
  for (int place = 1; place < per_node; ++place) into.send(0, 0, place, {place}, false);
  into.end_phase(1);
  for (int place = 0; place < per_node; ++place) {
    Places rail;
    for (int node = 0; node < nodes; ++node) rail.push_back(node * per_node + place);
    binomial(into, rail, true, [&](int, int) { return Chunks{place}; });
  }
  into.end_phase(rounds_to_reach(nodes));
  for (int round = 0; round + 1 < per_node; ++round)
    for (int from = 0; from < into.R(); ++from) {
      const int first = from / per_node * per_node, place = from % per_node;
      const int to = first + (place + 1) % per_node;
      if (to != 0) into.send(round, from, to, {(place - round + per_node) % per_node}, false);
    }
  into.end_phase(per_node - 1);
}

}  // namespace

void broadcast(Expansion& into, CollectiveAlgorithm algorithm, const GroupShape& shape) {
  if (algorithm == CollectiveAlgorithm::ring)
    return is_over_nodes(shape) ? chains_over_nodes(into, shape.per_node) : chain(into);
  if (algorithm == CollectiveAlgorithm::hierarchical) return over_nodes(into, shape.per_node);
  binomial(into, everyone(into), true, [&](int, int) { return into.all(); });
  into.end_phase(rounds_to_reach(into.R()));
}

void scatter_tree(Expansion& into) { parts_by_tree(into, true); }
void gather_tree(Expansion& into) { parts_by_tree(into, false); }

void scatter_flat(Expansion& into) {
  for (int to = 1; to < into.R(); ++to) into.send(to - 1, 0, to, {to}, false);
  into.end_phase(into.R() - 1);
}

void barrier(Expansion& into) {
  const int R = into.R(), rounds = rounds_to_reach(R);
  for (int round = 0; round < rounds; ++round)
    for (int from = 0; from < R; ++from) into.pass(round, from, (from + (1 << round)) % R, 0);
  into.end_phase(rounds);
}

CollectiveSteps turned_round(CollectiveSteps steps, bool reduce) {
  for (CollectiveStep& step : steps.steps) {
    step.round = steps.rounds - 1 - step.round;
    std::swap(step.from, step.to);
    step.reduce = reduce;
  }
  std::stable_sort(steps.steps.begin(), steps.steps.end(),
                   [](const CollectiveStep& a, const CollectiveStep& b) { return a.round < b.round; });
  return steps;
}

CollectiveSteps with_root(CollectiveSteps steps, const CollectiveTask& task, const GroupShape& shape) {
  if (task.root == 0) return steps;
  const int R = shape.rank_count, g = is_over_nodes(shape) ? shape.per_node : R;
  const auto moved = [&](int place) {
    const int node = (place / g + task.root / g) % (R / g);
    return node * g + (place % g + task.root % g) % g;
  };
  // Chunk i of these kinds is member i's part; in others it is a segment of what all members get or give.
  const bool has_parts = task.kind == CollectiveKind::gather || task.kind == CollectiveKind::scatter;
  for (CollectiveStep& step : steps.steps) {
    step.from = moved(step.from);
    step.to = moved(step.to);
    if (has_parts) step.chunk = moved(step.chunk);
  }
  return steps;
}

}  // namespace motley
