// What collectives with a root, barriers and exchanges of unlike parts cost on an idle fabric.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "models/cost/collective_cost.hpp"
#include "models/cost/compute_cost.hpp"
#include "tests/support/alike_nodes.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr double kAlpha = 1e-5, kBeta = 1e9;

std::map<CollectiveAlgorithm, CollectiveCost> task_costs(const CollectiveTask& task, const Cluster& cluster) {
  const Program program = ranks_on(cluster.chip_count());
  std::map<CollectiveAlgorithm, CollectiveCost> by_algorithm;
  for (const CollectiveCost& cost : collective_costs(program, cluster, program.groups.front(), task))
    by_algorithm[cost.algorithm] = cost;
  return by_algorithm;
}

CollectiveTask drawn_task(Dice& dice, int R) {
  const auto kind =
      dice.one_of({CollectiveKind::broadcast, CollectiveKind::reduce, CollectiveKind::gather,
                   CollectiveKind::scatter, CollectiveKind::barrier, CollectiveKind::all_to_all});
  if (is_rooted(kind)) return {kind, static_cast<int>(dice.engine()() % static_cast<unsigned>(R))};
  if (kind == CollectiveKind::barrier) return kind;
  std::vector<std::int64_t> parts(at(R * R));
  for (std::int64_t& part : parts) part = dice.one_of({0, 10, 1000});
  return {kind, 0, parts};
}

}  // namespace

TEST_CASE("on a uniform fabric every algorithm with a root takes its closed form, whoever is the root") {
  const std::int64_t bytes = 24'000'000;
  const double S = static_cast<double>(bytes), alpha = kAlpha, beta = kBeta;
  for (int ranks = 2; ranks <= 17; ++ranks)
    for (const int root : {0, 1, ranks - 1}) {
      const Cluster cluster = nodes_of(1, ranks, beta, 1, alpha);
      const double R = ranks, depth = std::ceil(std::log2(R)), wire = (R - 1) / R * S / beta;
      CAPTURE(ranks, root);
      for (const CollectiveKind kind : {CollectiveKind::broadcast, CollectiveKind::reduce}) {
        auto costs = task_costs({kind, root}, cluster);
        REQUIRE(costs.size() == 3);
        const double waits = ranks == 2 ? 1 : R + 6;
        CHECK(costs.at(CollectiveAlgorithm::ring).seconds(bytes) ==
              Approx(waits * alpha + S / beta).epsilon(1e-9));
        CHECK(costs.at(CollectiveAlgorithm::tree).seconds(bytes) ==
              Approx(depth * (alpha + S / beta)).epsilon(1e-9));
        if (depth == std::floor(std::log2(R)))
          CHECK(costs.at(CollectiveAlgorithm::recursive).seconds(bytes) ==
                Approx(2 * depth * alpha + 2 * wire).epsilon(1e-9));
      }
      for (const CollectiveKind kind : {CollectiveKind::gather, CollectiveKind::scatter}) {
        auto costs = task_costs({kind, root}, cluster);
        REQUIRE(costs.size() == 2);
        CHECK(costs.at(CollectiveAlgorithm::flat).seconds(bytes) ==
              Approx(alpha + (R - 2) * 0.4e-6 + wire).epsilon(1e-9));
        CHECK(costs.at(CollectiveAlgorithm::tree).seconds(bytes) ==
              Approx(depth * alpha + wire).epsilon(1e-9));
      }
      auto barrier = task_costs(CollectiveKind::barrier, cluster);
      REQUIRE(barrier.size() == 1);
      CHECK(barrier.at(CollectiveAlgorithm::dissemination).seconds(0) == Approx(depth * alpha).epsilon(1e-9));
    }
}

TEST_CASE(
    "over nodes a broadcast and a reduce take their time inside the nodes and their time on the rails") {
  const double S = 24e6, inside = 1e9;
  for (const int nodes : {2, 3, 5}) {
    const Cluster cluster = nodes_of(nodes, 4, inside, 1e8, 0);
    const double rail = route(cluster, 0, 4).rate, rounds = std::ceil(std::log2(nodes));
    for (const CollectiveKind kind : {CollectiveKind::broadcast, CollectiveKind::reduce})
      for (const int root : {0, 3, 4 * nodes - 2}) {
        CAPTURE(nodes, name_of(kind), root);
        auto costs = task_costs({kind, root}, cluster);
        const CollectiveCost& cost = costs.at(CollectiveAlgorithm::hierarchical);
        CHECK(cost.s_per_byte * S == Approx(2 * 0.75 * S / inside + rounds * S / (4 * rail)).epsilon(1e-9));
        CHECK(costs.at(CollectiveAlgorithm::ring).s_per_byte ==
              Approx(std::max(1 / inside, 1 / (4 * rail))).epsilon(1e-9));
      }
  }
}

TEST_CASE("more bandwidth never makes a collective of these kinds slower, and more bytes never faster") {
  for (unsigned seed = 0; seed < 120; ++seed) {
    Dice dice(seed);
    const int nodes = dice.one_of({1, 2, 3}), chips = dice.one_of({1, 2, 4}), R = nodes * chips;
    const double inside = dice.one_of({1e9, 2e10}), outside = dice.one_of({1e8, 1e10});
    const double latency_s = dice.one_of({0.0, 1e-6, 1e-4});
    const CollectiveTask task = drawn_task(dice, R);
    const auto slow = task_costs(task, nodes_of(nodes, chips, inside, outside, latency_s));
    for (const auto& [faster_inside, faster_outside] : {std::pair{2.0, 1.0}, {1.0, 2.0}, {3.0, 3.0}}) {
      const Cluster faster =
          nodes_of(nodes, chips, inside * faster_inside, outside * faster_outside, latency_s);
      for (const auto& [algorithm, cost] : task_costs(task, faster)) {
        CAPTURE(seed, name_of(task.kind), name_of(algorithm), R, task.root);
        double last_s = 0;
        for (const std::int64_t bytes : {0, 1, 10'000, 100'000'000}) {
          CHECK(cost.seconds(bytes) <= slow.at(algorithm).seconds(bytes) * (1 + 1e-12));
          CHECK(cost.seconds(bytes) >= last_s);
          CHECK(cost.seconds(bytes) >= cost.least_s_per_byte * static_cast<double>(bytes) * (1 - 1e-12));
          last_s = cost.seconds(bytes);
        }
      }
    }
  }
}

TEST_CASE(
    "an exchange of equal parts costs the same, to the last bit, when a table says that they are equal") {
  for (const auto& [nodes, chips] : {std::pair{1, 8}, {2, 4}, {3, 3}, {4, 1}}) {
    const int R = nodes * chips;
    const Cluster cluster = nodes_of(nodes, chips, 4.5e11, 3.7e10, 2e-6);
    const auto even = task_costs(CollectiveKind::all_to_all, cluster);
    const auto table =
        task_costs({CollectiveKind::all_to_all, 0, std::vector<std::int64_t>(at(R * R), 12'345)}, cluster);
    REQUIRE(table.size() == even.size());
    for (const auto& [algorithm, cost] : even) {
      CAPTURE(R, name_of(algorithm));
      CHECK(table.at(algorithm).latency_s == cost.latency_s);
      CHECK(table.at(algorithm).s_per_byte == cost.s_per_byte);
      CHECK(table.at(algorithm).least_s_per_byte == cost.least_s_per_byte);
      CHECK(table.at(algorithm).kappa == cost.kappa);
    }
  }
}

TEST_CASE("an exchange of unlike parts takes what the busiest member sends or receives") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Dice dice(seed);
    const int R = dice.one_of({2, 3, 5, 8});
    std::vector<std::int64_t> parts(at(R * R));
    for (std::int64_t& part : parts) part = dice.one_of({0, 1000, 50'000, 2'000'000});
    double busiest = 0;
    for (int member = 0; member < R; ++member) {
      double sent = 0, received = 0;
      for (int other = 0; other < R; ++other) {
        sent += other == member ? 0 : static_cast<double>(parts[at(member * R + other)]);
        received += other == member ? 0 : static_cast<double>(parts[at(other * R + member)]);
      }
      busiest = std::max({busiest, sent, received});
    }
    CAPTURE(seed, R);
    const Cluster cluster = nodes_of(1, R, kBeta, 1, kAlpha);
    const CollectiveCost cost =
        task_costs({CollectiveKind::all_to_all, 0, parts}, cluster).at(CollectiveAlgorithm::flat);
    CHECK(cost.seconds(payload_of(parts, R)) ==
          Approx(kAlpha + (R - 2) * 0.4e-6 + busiest / kBeta).epsilon(1e-9));
  }
}

TEST_CASE(
    "a scenario's algorithm is taken where it does the kind, else the plain one; tables are never once a "
    "node") {
  const Cluster cluster = nodes_of(2, 4, 1e11, 1e10, 1e-6);
  Program program = ranks_on(8);
  program.groups.front().kind = GroupKind::expert;
  program.routing = {16, 2, 1, 1};
  CostTable costs(program, cluster);
  const auto taken = [&](const CollectiveTask& task, CollectiveAlgorithm wanted) {
    return costs.algorithm_of(task, GroupId{}, wanted, 1 << 20);
  };
  using enum CollectiveAlgorithm;
  CHECK(taken(CollectiveKind::broadcast, ring) == ring);
  CHECK(taken(CollectiveKind::broadcast, automatic) == ring);
  CHECK(taken(CollectiveKind::reduce, tree) == tree);
  CHECK(taken(CollectiveKind::reduce, double_binary_tree) == ring);
  CHECK(taken(CollectiveKind::gather, ring) == flat);
  CHECK(taken(CollectiveKind::scatter, tree) == tree);
  for (const CollectiveAlgorithm any : {ring, tree, flat, fastest, automatic, hierarchical})
    CHECK(taken(CollectiveKind::barrier, any) == dissemination);
  std::vector<std::int64_t> parts(64, 10);
  parts[3] = 11;
  CHECK(taken(CollectiveKind::all_to_all, ring) == once_a_node);
  CHECK(taken({CollectiveKind::all_to_all, 0, parts}, ring) == flat);
  CHECK(taken({CollectiveKind::all_to_all, 0, parts}, hierarchical) == hierarchical);
  const CollectiveAlgorithm best = taken({CollectiveKind::broadcast, 5}, fastest);
  for (const auto& [algorithm, cost] : task_costs({CollectiveKind::broadcast, 5}, cluster))
    CHECK(costs.collective({CollectiveKind::broadcast, 5}, GroupId{}, best).seconds(1 << 20) <=
          cost.seconds(1 << 20));
}
