// Collectives with a root, barriers and exchanges of unlike parts in the Sim world: the three levels agree on an idle
// fabric, and nobody begins or ends before the kind lets it.
#include <algorithm>
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/cost/collective_cost.hpp"
#include "models/cost/compute_cost.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr CollectiveLevel kAllLevels[] = {CollectiveLevel::formula, CollectiveLevel::fluid,
                                          CollectiveLevel::expanded};
constexpr CollectiveKind kNewKinds[] = {CollectiveKind::broadcast, CollectiveKind::reduce,
                                        CollectiveKind::gather, CollectiveKind::scatter,
                                        CollectiveKind::barrier};

Collective collective_of_task(const CollectiveTask& task, std::int64_t bytes) {
  Collective collective;
  collective.kind = task.kind;
  collective.root = task.root;
  collective.part_bytes = task.part_bytes;
  collective.slot = kDataGroup;
  collective.bytes = bytes;
  return collective;
}

HandMade everyone(const Cluster& cluster, CollectiveLevel level, CollectiveAlgorithm algorithm) {
  Fidelity fidelity;
  fidelity.data_parallel = level;
  fidelity.algorithm = algorithm;
  HandMade p(cluster, fidelity);
  std::vector<Rank> members;
  for (const Rank rank : p.program.ranks.ids()) members.push_back(rank);
  p.group(GroupKind::data, kDataGroup, members);
  return p;
}

// Seconds of tasks of so many bytes one after the other.
double task_seconds(const std::vector<CollectiveTask>& tasks, std::int64_t bytes, const Cluster& cluster,
                    CollectiveLevel level, CollectiveAlgorithm algorithm) {
  HandMade p = everyone(cluster, level, algorithm);
  for (const CollectiveTask& task : tasks)
    for (const Rank rank : p.program.ranks.ids()) p.add_collective(rank, collective_of_task(task, bytes));
  return end_of(p.run());
}

Cluster several_nodes(int nodes, int chips) {
  Cluster cluster = one_node(chips, {FabricKind::loopback, 1e9, 1e-6});
  cluster.groups[0].nodes = nodes;
  cluster.groups[0].nics = {{NicKind::infiniband, chips, 1e8, 5e-6}};
  build_topology(cluster);
  return cluster;
}

// Every algorithm of the task: its closed form at levels formula and fluid, and at level expanded within `slack`.
int check_levels(const CollectiveTask& task, std::int64_t bytes, const Cluster& cluster, double slack) {
  int seen = 0;
  const HandMade p = everyone(cluster, CollectiveLevel::formula, CollectiveAlgorithm::ring);
  for (const CollectiveCost& cost : collective_costs(p.program, cluster, p.program.groups.front(), task)) {
    CAPTURE(name_of(task.kind), name_of(cost.algorithm), task.root, cluster.chip_count(), bytes);
    const auto at_level = [&](CollectiveLevel level) {
      return task_seconds({task}, bytes, cluster, level, cost.algorithm);
    };
    CHECK(at_level(CollectiveLevel::formula) == Approx(cost.seconds(bytes)).epsilon(1e-9));
    CHECK(at_level(CollectiveLevel::fluid) == Approx(cost.seconds(bytes)).epsilon(1e-6));
    const double expanded = at_level(CollectiveLevel::expanded);
    CHECK(expanded == Approx(cost.seconds(bytes)).epsilon(slack));
    CHECK(expanded >= cost.least_s_per_byte * static_cast<double>(bytes) * (1 - 1e-9));
    ++seen;
  }
  return seen;
}

}  // namespace

TEST_CASE("collectives with a root and barriers take their closed form at every level, whoever is the root") {
  int seen = 0;
  for (const CollectiveKind kind : kNewKinds)
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8})
      for (const int root : {0, ranks / 2, ranks - 1}) {
        if (root > 0 && !is_rooted(kind)) continue;
        const std::int64_t bytes = kind == CollectiveKind::barrier ? 0 : 16 * 3 * 5 * 7 * 1000;
        if (ranks > 1) seen += check_levels({kind, root}, bytes, one_node(ranks), 1e-6);
        if (ranks == 1)
          for (const CollectiveLevel level : kAllLevels)
            CHECK(task_seconds({kind}, bytes, one_node(1), level, CollectiveAlgorithm::ring) == 0);
      }
  CHECK(seen == 6 * 3 * (2 * 3 + 2 * 2) + 6);
}

TEST_CASE("across nodes collectives with a root and barriers take their closed form at every level") {
  for (const CollectiveKind kind : kNewKinds)
    for (const auto& [nodes, chips] : {std::pair{2, 4}, {3, 4}, {4, 2}, {5, 1}})
      for (const int root : {0, nodes * chips - 2}) {
        if (root > 0 && !is_rooted(kind)) continue;
        const std::int64_t bytes = kind == CollectiveKind::barrier ? 0 : 48'000'000;
        check_levels({kind, root}, bytes, several_nodes(nodes, chips), 0.01);
      }
}

TEST_CASE("collectives of no bytes, and several in a row with other roots, end at every level") {
  for (const CollectiveKind kind : kNewKinds)
    for (const CollectiveLevel level : kAllLevels) {
      const int last = is_rooted(kind) ? 4 : 0;
      const auto seconds = [&](const std::vector<CollectiveTask>& tasks, std::int64_t bytes) {
        return task_seconds(tasks, bytes, one_node(5), level, CollectiveAlgorithm::tree);
      };
      CAPTURE(name_of(kind), static_cast<int>(level));
      CHECK(seconds({{kind, last}}, 0) == Approx(3e-5));  // ceil(log2 5) rounds
      const std::int64_t bytes = kind == CollectiveKind::barrier ? 0 : 5'000'000;
      CHECK(seconds({{kind}, {kind, last}, {kind}}, bytes) ==
            Approx(3 * seconds({{kind}}, bytes)).epsilon(1e-6));
    }
}

TEST_CASE("at every level a barrier ends for no member before the last has come") {
  for (const CollectiveLevel level : kAllLevels)
    for (int late = 0; late < 6; ++late) {
      HandMade p = everyone(one_node(6), level, CollectiveAlgorithm::ring);
      for (const Rank rank : p.program.ranks.ids()) {
        std::vector<After> after;
        if (rank == Rank(late)) after.push_back(p.compute(rank, 1));
        p.add_collective(rank, collective_of_task(CollectiveKind::barrier, 0), after);
      }
      const Trace trace = p.run();
      for (const TraceEvent& event : trace.events) CHECK(event.end_s >= 1);
      CHECK(end_of(trace) <= 1 + 3e-5 + 1e-9);
    }
}

TEST_CASE("at every level a collective with a root begins when its last member has come") {
  for (const CollectiveKind kind :
       {CollectiveKind::broadcast, CollectiveKind::scatter, CollectiveKind::gather})
    for (const CollectiveLevel level : kAllLevels) {
      HandMade p = everyone(one_node(4), level, CollectiveAlgorithm::tree);
      const double late_s = 1;
      for (const Rank rank : p.program.ranks.ids()) {
        std::vector<After> after;
        if (rank == 3_rank) after.push_back(p.compute(rank, late_s));
        p.add_collective(rank, collective_of_task(kind, 4'000'000), after);
        p.add_collective(rank, collective_of_task({kind, 2}, 4'000'000));
      }
      const Trace trace = p.run();
      for (const TraceEvent& event : trace.events) {
        if (std::get_if<Collective>(
                &p.program.at(event.step.rank, event.step.stream, event.step.index).body) == nullptr)
          continue;
        CHECK(event.matched_s >= late_s);
        CHECK(event.end_s >= event.matched_s);
      }
    }
}

TEST_CASE(
    "exchanges of unlike parts take their closed form at levels formula and fluid, and little more "
    "expanded") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Dice dice(seed);
    const int nodes = dice.one_of({1, 2, 3}), chips = dice.one_of({2, 4}), R = nodes * chips;
    std::vector<std::int64_t> parts(at(R * R));
    for (std::int64_t& part : parts) part = dice.one_of({0, 1000, 50'000, 2'000'000});
    const CollectiveTask task{CollectiveKind::all_to_all, 0, parts};
    const std::int64_t bytes = payload_of(parts, R);
    const Cluster cluster = several_nodes(nodes, chips);
    const HandMade p = everyone(cluster, CollectiveLevel::formula, CollectiveAlgorithm::ring);
    for (const CollectiveCost& cost : collective_costs(p.program, cluster, p.program.groups.front(), task)) {
      CAPTURE(seed, R, name_of(cost.algorithm));
      const auto at_level = [&](CollectiveLevel level) {
        return task_seconds({task}, bytes, cluster, level, cost.algorithm);
      };
      CHECK(at_level(CollectiveLevel::formula) == Approx(cost.seconds(bytes)).epsilon(1e-9));
      CHECK(at_level(CollectiveLevel::fluid) == Approx(cost.seconds(bytes)).epsilon(1e-4));
      const double expanded = at_level(CollectiveLevel::expanded);
      CHECK(expanded >= cost.least_s_per_byte * static_cast<double>(bytes) * (1 - 1e-9));
      CHECK(expanded <= cost.seconds(bytes) * 1.3);
    }
  }
}

TEST_CASE("a table of equal parts changes no instant of an exchange, at any level") {
  const Cluster cluster = several_nodes(2, 3);
  const CollectiveTask table{CollectiveKind::all_to_all, 0, std::vector<std::int64_t>(36, 1001)};
  for (const CollectiveLevel level : kAllLevels)
    for (const auto algorithm :
         {CollectiveAlgorithm::flat, CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::fastest})
      CHECK(task_seconds({table}, 6006, cluster, level, algorithm) ==
            task_seconds({CollectiveKind::all_to_all}, 6006, cluster, level, algorithm));
}

TEST_CASE("a program whose roots, tables or barriers are not possible is refused") {
  const auto refusal = [](const Collective& collective) -> std::string {
    HandMade p = everyone(one_node(3), CollectiveLevel::formula, CollectiveAlgorithm::ring);
    p.program.sequence = 1;
    for (const Rank rank : p.program.ranks.ids()) p.add_collective(rank, collective);
    try {
      check_indices(p.program);
    } catch (const Refusal& refused) {
      return refused.what();
    }
    return "";
  };
  const auto broken = [&](const CollectiveTask& task, std::int64_t bytes) {
    return refusal(collective_of_task(task, bytes));
  };
  using Catch::Contains;
  CHECK(broken({CollectiveKind::broadcast, 2}, 10).empty());
  CHECK(broken(CollectiveKind::barrier, 0).empty());
  CHECK(broken({CollectiveKind::all_to_all, 0, {1, 2, 3, 0, 0, 0, 4, 5, 6}}, 15).empty());
  CHECK_THAT(broken({CollectiveKind::broadcast, 3}, 10), Contains("broadcast with root 3 among 3"));
  CHECK_THAT(broken({CollectiveKind::gather, -1}, 10), Contains("gather with root -1 among 3"));
  CHECK_THAT(broken({CollectiveKind::all_reduce, 1}, 10), Contains("all_reduce with root 1 among 3"));
  CHECK_THAT(broken(CollectiveKind::barrier, 4), Contains("a barrier with a payload"));
  CHECK_THAT(broken({CollectiveKind::all_gather, 0, {1}}, 10), Contains("all_gather with part_bytes"));
  CHECK_THAT(broken({CollectiveKind::all_to_all, 0, {1}}, 1),
             Contains("an all_to_all among 3 with 1 part_bytes"));
  CHECK_THAT(broken({CollectiveKind::all_to_all, 0, {1, 2, 3, 0, 0, 0, 4, 5, 6}}, 16),
             Contains("an all_to_all of 16 bytes whose parts make 15"));
  CHECK_THAT(broken({CollectiveKind::all_to_all, 0, {-1, 2, 3, 0, 0, 0, 4, 5, 6}}, 15),
             Contains("with a part of -1 bytes"));
  Collective expected = collective_of_task({CollectiveKind::all_to_all, 0, {1, 2, 3, 0, 0, 0, 4, 5, 6}}, 15);
  expected.expected = 3;
  CHECK_THAT(refusal(expected), Contains("part_bytes and expected bytes"));
}

TEST_CASE("members that name unlike roots or unlike parts are refused") {
  const auto refusal = [](const Collective& mine, const Collective& theirs) -> std::string {
    HandMade p = everyone(one_node(2), CollectiveLevel::formula, CollectiveAlgorithm::ring);
    p.add_collective(0_rank, mine);
    p.add_collective(1_rank, theirs);
    try {
      find_deadlock(p.program);
    } catch (const Refusal& refused) {
      return refused.what();
    }
    return "";
  };
  const Collective broadcast = collective_of_task({CollectiveKind::broadcast, 1}, 8);
  CHECK(refusal(broadcast, broadcast).empty());
  CHECK_THAT(refusal(broadcast, collective_of_task(CollectiveKind::broadcast, 8)),
             Catch::Contains("unlike roots"));
  CHECK_THAT(refusal(collective_of_task({CollectiveKind::all_to_all, 0, {1, 2, 2, 1}}, 3),
                     collective_of_task({CollectiveKind::all_to_all, 0, {2, 1, 1, 2}}, 3)),
             Catch::Contains("unlike parts"));
}
