// Collectives with a root, barriers and exchanges of unlike parts, as lists of steps: what each member ends with, and
// how much it sends. Every root, every number of members, every way in which they stand on nodes.
#include <bit>
#include <catch2/catch.hpp>
#include <functional>

#include "tests/support/dice.hpp"
#include "tests/support/followed_collective.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr CollectiveKind kRooted[] = {CollectiveKind::broadcast, CollectiveKind::reduce,
                                      CollectiveKind::gather, CollectiveKind::scatter};
constexpr CollectiveAlgorithm kAllAlgorithms[] = {CollectiveAlgorithm::ring,
                                                  CollectiveAlgorithm::tree,
                                                  CollectiveAlgorithm::double_binary_tree,
                                                  CollectiveAlgorithm::recursive,
                                                  CollectiveAlgorithm::in_switch,
                                                  CollectiveAlgorithm::once_a_node,
                                                  CollectiveAlgorithm::hierarchical,
                                                  CollectiveAlgorithm::flat,
                                                  CollectiveAlgorithm::dissemination};

using Each = std::function<void(const CollectiveTask&, CollectiveAlgorithm, const GroupShape&)>;

// Every list of a rooted kind for so many members, and its number.
int for_each_rooted(int most, const Each& act) {
  int seen = 0;
  for (const CollectiveKind kind : kRooted)
    for (const CollectiveAlgorithm algorithm : kAllAlgorithms)
      for (int ranks = 1; ranks <= most; ++ranks)
        for (int per_node = 1; per_node <= ranks; ++per_node)
          for (int root = 0; root < ranks; ++root) {
            const GroupShape shape{ranks, per_node};
            if (!does(algorithm, kind, shape)) continue;
            CAPTURE(name_of(kind), name_of(algorithm), ranks, per_node, root);
            act({kind, root}, algorithm, shape);
            ++seen;
          }
  return seen;
}

// What each member sends and receives, as a share of the payload.
struct Volume {
  std::vector<double> sent, received;
};
Volume volume_of(const CollectiveSteps& steps) {
  Volume volume{std::vector<double>(at(steps.rank_count)), std::vector<double>(at(steps.rank_count))};
  for (const CollectiveMessage& message : messages(steps)) {
    volume.sent[at(message.from)] += steps.share(message.chunks);
    volume.received[at(message.to)] += steps.share(message.chunks);
  }
  return volume;
}

}  // namespace

TEST_CASE("after every collective with a root each member holds what its kind says, whoever is the root") {
  const int seen = for_each_rooted(
      9, [](const CollectiveTask& task, CollectiveAlgorithm algorithm, const GroupShape& shape) {
        const CollectiveSteps steps = expand(task, algorithm, shape);
        FollowedCollective followed(task, steps);
        followed.run();
        followed.check_end();
      });
  // For each number of members, each number on a node and each root: ring, tree and recursive of two kinds, tree and
  // flat of two; and hierarchical of two where there are several nodes: 4 = 2 x 2, 6 = 2 x 3 = 3 x 2, 8, 9.
  int shapes = 0;
  for (int ranks = 1; ranks <= 9; ++ranks) shapes += ranks * ranks;
  CHECK(seen == shapes * (2 * 3 + 2 * 2) + 2 * (4 + 2 * 6 + 2 * 8 + 9));
}

TEST_CASE("a broadcast brings each chunk once to each member but the root, and a reduce takes each once") {
  for_each_rooted(9, [](const CollectiveTask& task, CollectiveAlgorithm algorithm, const GroupShape& shape) {
    const bool reduces = task.kind == CollectiveKind::reduce;
    if (!reduces && task.kind != CollectiveKind::broadcast) return;
    if (algorithm == CollectiveAlgorithm::recursive) return;
    const Volume volume = volume_of(expand(task, algorithm, shape));
    for (int member = 0; member < shape.rank_count; ++member) {
      const double moved = (reduces ? volume.sent : volume.received)[at(member)];
      REQUIRE(moved == Approx(member == task.root ? 0 : 1).epsilon(1e-9));
    }
  });
}

TEST_CASE("no member of a collective with a root sends or receives more than its algorithm says") {
  for_each_rooted(9, [](const CollectiveTask& task, CollectiveAlgorithm algorithm, const GroupShape& shape) {
    const CollectiveSteps steps = expand(task, algorithm, shape);
    const double R = shape.rank_count, depth = std::bit_width(static_cast<unsigned>(shape.rank_count - 1));
    const bool of_whole = task.kind == CollectiveKind::broadcast || task.kind == CollectiveKind::reduce;
    double most = (R - 1) / R;  // gather, scatter
    if (of_whole && algorithm == CollectiveAlgorithm::ring)
      most = is_over_nodes(shape) ? 1 + 1.0 / shape.per_node : 1;
    if (of_whole && algorithm == CollectiveAlgorithm::tree) most = depth;
    if (of_whole && algorithm == CollectiveAlgorithm::recursive)
      most *= std::has_single_bit(static_cast<unsigned>(shape.rank_count)) ? 2 : 4;
    if (of_whole && algorithm == CollectiveAlgorithm::hierarchical) {
      const double g = shape.per_node, rounds = std::bit_width(static_cast<unsigned>(R / g - 1));
      most = 2 * (g - 1) / g + rounds / g;
    }
    const Volume volume = volume_of(steps);
    for (int member = 0; member < shape.rank_count; ++member) {
      REQUIRE(volume.sent[at(member)] <= most + 1e-9);
      REQUIRE(volume.received[at(member)] <= most + 1e-9);
    }
    if (algorithm != CollectiveAlgorithm::flat) return;
    for (int member = 0; member < shape.rank_count; ++member)  // each part goes its way once
      if (member != task.root)
        REQUIRE(volume.sent[at(member)] + volume.received[at(member)] == Approx(1 / R).epsilon(1e-9));
  });
}

TEST_CASE("members of a node are those of one node for every root") {
  for_each_rooted(9, [](const CollectiveTask& task, CollectiveAlgorithm algorithm, const GroupShape& shape) {
    if (!is_over_nodes(shape)) return;
    const auto between = [&](const CollectiveSteps& steps) {
      double share = 0;
      for (const CollectiveMessage& each : messages(steps))
        if (each.from / shape.per_node != each.to / shape.per_node) share += steps.share(each.chunks);
      return share;
    };
    REQUIRE(between(expand(task, algorithm, shape)) ==
            Approx(between(expand(task.kind, algorithm, shape))).epsilon(1e-9));
  });
}

TEST_CASE("over nodes the chains of a broadcast load every NIC alike, with one member's share") {
  for (const auto& [nodes, per_node] : {std::pair{2, 2}, {3, 4}, {5, 3}})
    for (const int root : {0, 1, nodes * per_node - 1}) {
      const GroupShape shape{nodes * per_node, per_node};
      const auto steps = expand({CollectiveKind::broadcast, root}, CollectiveAlgorithm::ring, shape);
      std::map<std::pair<int, int>, double> crossing;  // by ends
      for (const CollectiveMessage& each : messages(steps))
        if (each.from / per_node != each.to / per_node)
          crossing[{each.from, each.to}] += steps.share(each.chunks);
      CHECK(crossing.size() == at((nodes - 1) * per_node));
      for (const auto& [ends, share] : crossing) {
        CHECK(ends.first % per_node == ends.second % per_node);
        CHECK(share == Approx(1.0 / per_node).epsilon(1e-9));
      }
    }
}

TEST_CASE("nobody leaves a barrier before everybody has come, and its messages have no bytes") {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    CAPTURE(ranks);
    const CollectiveSteps steps =
        expand(CollectiveKind::barrier, CollectiveAlgorithm::dissemination, {ranks, 1});
    FollowedCollective followed(CollectiveKind::barrier, steps);
    followed.run();
    followed.check_end();
    CHECK(steps.rounds == static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))));
    CHECK(steps.steps.size() == at(steps.rounds * ranks));
    for (const CollectiveMessage& message : messages(steps)) CHECK(message.chunks == 0);
  }
}

TEST_CASE("each kind has a plain algorithm, and only a barrier is done by dissemination") {
  for (int kind = 0; kind <= static_cast<int>(CollectiveKind::barrier); ++kind) {
    const auto each = static_cast<CollectiveKind>(kind);
    CHECK(does(plain_algorithm(each), each, {3, 1}));
    CHECK(does(CollectiveAlgorithm::dissemination, each, {4, 2}) == (each == CollectiveKind::barrier));
    CHECK(joins_all(each) != is_rooted(each));
  }
}

TEST_CASE("members that exchange unlike parts end with theirs, and each sends what the table says") {
  int seen = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Dice dice(seed);
    const int per_node = dice.one_of({1, 2, 3, 4}), R = per_node * dice.one_of({1, 2, 3});
    std::vector<std::int64_t> parts(at(R * R));
    for (std::int64_t& part : parts) part = dice.one_of({0, 1, 100, 4096});
    const CollectiveTask task{CollectiveKind::all_to_all, 0, parts};
    const auto payload = static_cast<double>(payload_of(parts, R));
    for (const CollectiveAlgorithm algorithm :
         {CollectiveAlgorithm::flat, CollectiveAlgorithm::hierarchical}) {
      if (!does(algorithm, task, {R, per_node})) continue;
      CAPTURE(seed, R, per_node, name_of(algorithm));
      const CollectiveSteps steps = expand(task, algorithm, {R, per_node});
      FollowedCollective followed(task, steps);
      followed.run();
      followed.check_end();
      const Volume volume = volume_of(steps);
      for (int member = 0; member < R; ++member) {
        double sent = 0, received = 0;
        for (int other = 0; other < R; ++other) {
          if (other == member) continue;
          sent += static_cast<double>(parts[at(member * R + other)]);
          received += static_cast<double>(parts[at(other * R + member)]);
        }
        CHECK(volume.sent[at(member)] * payload >= sent * (1 - 1e-9));
        CHECK(volume.received[at(member)] * payload >= received * (1 - 1e-9));
        if (algorithm == CollectiveAlgorithm::hierarchical) continue;
        CHECK(volume.sent[at(member)] * payload == Approx(sent).epsilon(1e-9));
        CHECK(volume.received[at(member)] * payload == Approx(received).epsilon(1e-9));
      }
      ++seen;
    }
  }
  CHECK(seen > 250);
}

TEST_CASE("a table of equal parts lists the steps of an exchange of equal parts, of the same sizes") {
  for (const int R : {1, 2, 6, 9}) {
    const CollectiveTask equal{CollectiveKind::all_to_all, 0, std::vector<std::int64_t>(at(R * R), 700)};
    for (const CollectiveAlgorithm algorithm :
         {CollectiveAlgorithm::flat, CollectiveAlgorithm::hierarchical}) {
      const GroupShape shape{R, 3};
      if (!does(algorithm, equal, shape)) continue;
      CHECK(messages(expand(equal, algorithm, shape)) ==
            messages(expand(CollectiveKind::all_to_all, algorithm, shape)));
    }
  }
  Collective collective;
  collective.kind = CollectiveKind::all_to_all;
  collective.part_bytes = {5, 5, 5, 5};
  CHECK(task_of(collective) == CollectiveTask(CollectiveKind::all_to_all));
  collective.part_bytes = {5, 5, 5, 6};
  CHECK(task_of(collective).part_bytes == collective.part_bytes);
  CHECK(payload_of(collective.part_bytes, 2) == 11);
}
