// The algorithms of collectives, followed chunk by chunk: which contributions each member holds, for any number of
// members, and how long they take, compared with the closed forms of the papers.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/cost/collective_cost.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/program/routing.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/alike_nodes.hpp"
#include "tests/support/followed_collective.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_gather, CollectiveKind::all_to_all};
constexpr CollectiveAlgorithm kAlgorithms[] = {CollectiveAlgorithm::ring,
                                               CollectiveAlgorithm::tree,
                                               CollectiveAlgorithm::double_binary_tree,
                                               CollectiveAlgorithm::recursive,
                                               CollectiveAlgorithm::hierarchical,
                                               CollectiveAlgorithm::flat};

std::map<CollectiveAlgorithm, CollectiveCost> costs_of(CollectiveKind kind, const Cluster& cluster) {
  const Program program = ranks_on(cluster.chip_count());
  std::map<CollectiveAlgorithm, CollectiveCost> by_algorithm;
  for (const CollectiveCost& cost : collective_costs(program, cluster, program.groups.front(), kind))
    by_algorithm[cost.algorithm] = cost;
  return by_algorithm;
}

}  // namespace

TEST_CASE("after every algorithm of every kind each member holds each contribution exactly once") {
  int seen = 0;
  for (CollectiveKind kind : kKinds)
    for (CollectiveAlgorithm algorithm : kAlgorithms)
      for (int ranks = 1; ranks <= 17; ++ranks)
        for (int per_node = 1; per_node <= ranks; ++per_node) {
          const bool by_node = algorithm == CollectiveAlgorithm::hierarchical ||
                               (algorithm == CollectiveAlgorithm::double_binary_tree && per_node < ranks);
          if (!by_node && per_node > 1) continue;
          if (by_node && ranks % per_node != 0) continue;
          if (!does(algorithm, kind, {ranks, per_node})) continue;
          CAPTURE(name_of(kind), name_of(algorithm), ranks, per_node);
          const CollectiveSteps steps = expand(kind, algorithm, {ranks, per_node});
          FollowedCollective followed(kind, steps);
          followed.run();
          followed.check_end();
          ++seen;
        }
  // 17 rank counts: 3 kinds by ring, 3 recursive, 2 trees, 1 pairwise exchange; 5 more cases for each factoring.
  int factorings = 0;
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (int per_node = 2; per_node < ranks; ++per_node) factorings += ranks % per_node == 0;
  REQUIRE(seen == 17 * (3 + 3 + 2 + 1) + 5 * factorings);
}

TEST_CASE(
    "trees over nodes are waited for as often as nodes and members are deep, not as there are members") {
  const Cluster cluster = nodes_of(8, 4, 1e9, 1e8, 1e-5);
  auto costs = costs_of(CollectiveKind::all_reduce, cluster);
  const CollectiveCost& tree = costs.at(CollectiveAlgorithm::double_binary_tree);
  CHECK(tree.latency_s < costs.at(CollectiveAlgorithm::ring).latency_s / 2);
  CHECK(tree.s_per_byte == Approx(tree.least_s_per_byte / 0.92).epsilon(1e-9));
}

TEST_CASE("a switch of each of two nodes adds what its members have, and NICs carry it once") {
  Cluster cluster = nodes_of(2, 8, 4e11, 5e10, 1e-6);
  CHECK(costs_of(CollectiveKind::all_reduce, cluster).count(CollectiveAlgorithm::in_switch) == 0);
  for (NodeGroup& group : cluster.groups) group.inside.in_switch = 3e11;
  build_topology(cluster);
  const CollectiveCost cost =
      costs_of(CollectiveKind::all_reduce, cluster).at(CollectiveAlgorithm::in_switch);
  const auto links_need = [&](double nic) {
    for (NodeGroup& group : cluster.groups) group.nics[0].bandwidth = nic;
    build_topology(cluster);
    return costs_of(CollectiveKind::all_reduce, cluster).at(CollectiveAlgorithm::in_switch).least_s_per_byte;
  };
  CHECK(cost.s_per_byte > cost.least_s_per_byte);
  CHECK(links_need(1e12) == Approx((1 + 1.0 / 8) / 3e11).epsilon(1e-3));
  const double efficiency = route(cluster, 0, 8).rate / route(cluster, 0, 8).bandwidth;
  CHECK(links_need(1e9) == Approx(1.0 / 8 / (1e9 * efficiency)).epsilon(1e-2));
  Cluster three = nodes_of(3, 8, 4e11, 5e10, 1e-6);
  for (NodeGroup& group : three.groups) group.inside.in_switch = 3e11;
  build_topology(three);
  CHECK(costs_of(CollectiveKind::all_reduce, three).count(CollectiveAlgorithm::in_switch) == 0);
}

TEST_CASE("on a uniform fabric every algorithm takes its closed form") {
  const double alpha = 1e-5, beta = 1e9;
  const std::int64_t bytes = 24'000'000;
  const double S = static_cast<double>(bytes);
  for (int ranks = 2; ranks <= 17; ++ranks) {
    const Cluster cluster = nodes_of(1, ranks, beta, 1, alpha);
    auto reduce = costs_of(CollectiveKind::all_reduce, cluster);
    auto gather = costs_of(CollectiveKind::all_gather, cluster);
    auto exchange = costs_of(CollectiveKind::all_to_all, cluster);
    const double R = ranks, up = std::ceil(std::log2(R)), down = std::floor(std::log2(R));
    CAPTURE(ranks);
    CHECK(reduce.at(CollectiveAlgorithm::ring).seconds(bytes) ==
          Approx(2 * (R - 1) * (alpha + S / (R * beta))).epsilon(1e-9));
    CHECK(exchange.at(CollectiveAlgorithm::flat).seconds(bytes) ==
          Approx(alpha + (R - 2) * 0.4e-6 + (R - 1) * S / (R * beta)).epsilon(1e-9));
    CHECK(reduce.at(CollectiveAlgorithm::tree).seconds(bytes) ==
          Approx(2 * up * (alpha + S / beta)).epsilon(1e-9));
    const double trees = 2 * (down + 7) * (alpha + S / (8 * beta));
    const double priced = reduce.at(CollectiveAlgorithm::double_binary_tree).seconds(bytes);
    CHECK(priced <= trees * (1 + 1e-9));
    if (ranks == 3 || ranks == 7 || ranks == 15) CHECK(priced == Approx(trees).epsilon(1e-9));
    if (up != down) continue;
    const double halves = down * alpha + (R - 1) / R * S / beta;
    CHECK(reduce.at(CollectiveAlgorithm::recursive).seconds(bytes) == Approx(2 * halves).epsilon(1e-9));
    CHECK(gather.at(CollectiveAlgorithm::recursive).seconds(bytes) == Approx(halves).epsilon(1e-9));
  }
}

TEST_CASE("by rails a collective takes its time inside the nodes and its time between them") {
  const double S = 24'000'000;
  const Cluster cluster = nodes_of(3, 4, 1e9, 1e8, 0);
  const double inside = 1e9, rail = route(cluster, 0, 4).rate;
  const MessageCost transport = message_cost_of(cluster, 0, 4);
  REQUIRE(shape_of(ranks_on(12), cluster, ranks_on(12).groups.front()).per_node == 4);
  const auto check = [&](CollectiveKind kind, double times, double rail_bytes) {
    const CollectiveCost cost = costs_of(kind, cluster).at(CollectiveAlgorithm::hierarchical);
    CHECK(cost.s_per_byte * S ==
          Approx(times * (3 * S / (4 * inside) + 2 * rail_bytes / (3 * rail))).epsilon(1e-9));
    CHECK(cost.latency_s >= times * 2 * transport.software_latency_s);
  };
  check(CollectiveKind::all_reduce, 2, S / 4);
  check(CollectiveKind::reduce_scatter, 1, S / 4);
  check(CollectiveKind::all_gather, 1, S / 4);
  check(CollectiveKind::all_to_all, 1, S);
}

TEST_CASE("the fastest takes least at every size, changes with it, and the text says what else there is") {
  const Cluster cluster = nodes_of(4, 4, 1e11, 1e10, 1e-5);
  const Program program = ranks_on(16);
  const auto costs = collective_costs(program, cluster, program.groups.front(), CollectiveKind::all_reduce);
  REQUIRE(costs.size() == 5);
  std::set<CollectiveAlgorithm> chosen;
  for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 34; bytes *= 4) {
    const CollectiveAlgorithm best = fastest(costs, bytes);
    const auto same = [&](const CollectiveCost& cost) { return cost.algorithm == best; };
    const auto taken = std::find_if(costs.begin(), costs.end(), same);
    for (const CollectiveCost& cost : costs) CHECK(taken->seconds(bytes) <= cost.seconds(bytes));
    const std::string text = explain(costs, best, CollectiveAlgorithm::fastest, bytes);
    CHECK_THAT(text, Catch::StartsWith(std::string(name_of(best)) + ": "));
    CHECK_THAT(text, Catch::Contains(", before "));
    chosen.insert(best);
  }
  CHECK(chosen.size() >= 2);
}

TEST_CASE("every algorithm takes longer for more bytes, and never less than its most loaded link needs") {
  for (const Cluster& cluster : {nodes_of(1, 8, 1e11, 1e10, 1e-5), nodes_of(4, 4, 1e11, 1e10, 1e-5)})
    for (CollectiveKind kind : kKinds)
      for (const auto& [algorithm, cost] : costs_of(kind, cluster)) {
        CAPTURE(name_of(kind), name_of(algorithm));
        double last_s = 0;
        for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 34; bytes *= 8) {
          CHECK(cost.seconds(bytes) > last_s);
          CHECK(cost.seconds(bytes) >= cost.least_s_per_byte * static_cast<double>(bytes));
          last_s = cost.seconds(bytes);
        }
      }
}

TEST_CASE("a switch that reduces carries S(1+1/R) for each chip") {
  for (int ranks : {2, 4, 8}) {
    Cluster cluster = nodes_of(1, ranks, 1e9, 1, 1e-5);
    cluster.groups[0].inside.in_switch = 8e8;
    const double alpha = 1e-5, S = 24e6;
    const CollectiveCost cost =
        costs_of(CollectiveKind::all_reduce, cluster).at(CollectiveAlgorithm::in_switch);
    CHECK(cost.seconds(24'000'000) == Approx(25e-6 + 2 * alpha + S * (1 + 1.0 / ranks) / 8e8).epsilon(1e-9));
  }
  CHECK(
      costs_of(CollectiveKind::all_reduce, nodes_of(1, 8, 1e9, 1, 0)).count(CollectiveAlgorithm::in_switch) ==
      0);
}

TEST_CASE(
    "a tensor-parallel sum takes its ring or the switch, whichever is sooner; all else takes its ring") {
  Program program = ranks_on(8);
  const auto ring_of = [&](GroupKind kind, double in_switch) {
    Cluster cluster = nodes_of(1, 8, 4.5e11, 5e10, 2e-6);
    cluster.groups[0].inside.in_switch = in_switch;
    program.groups.front().kind = kind;
    return ring_or_switch_cost(program, cluster, program.groups.front());
  };
  const RingCost ring = ring_of(GroupKind::tensor, 0), with = ring_of(GroupKind::tensor, 3.2e11);
  CHECK(ring_of(GroupKind::data, 3.2e11) == ring);
  CHECK_FALSE(ring.in_switch);
  int in_switch = 0;
  for (std::int64_t bytes = 1024; bytes < std::int64_t{1} << 34; bytes *= 4) {
    CAPTURE(bytes);
    const double ring_s = collective_s(CollectiveKind::all_reduce, ring, bytes);
    CHECK(priced_collective_s(CollectiveKind::all_reduce, ring, bytes) == ring_s);
    CHECK(priced_collective_s(CollectiveKind::all_reduce, with, bytes) ==
          std::min(ring_s, with.in_switch->seconds(bytes)));
    in_switch += with.reduces_in_switch(CollectiveKind::all_reduce, bytes) ? 1 : 0;
    for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter})
      CHECK(priced_collective_s(kind, with, bytes) == collective_s(kind, ring, bytes));
  }
  CHECK(in_switch > 5);
}

TEST_CASE("switches reduce by the generation of the chips that they join, unless their file says otherwise") {
  const auto rate = [](const std::string& chip, const std::string& more) {
    const Cluster cluster = parse_cluster("groups: [{name: a, nodes: 1, chips_per_node: 8, chip: " + chip +
                                          ", inside: {bandwidth: 400 GB/s, " + more + "}}]");
    CHECK(parse_cluster(print(cluster)) == cluster);
    return cluster.groups[0].inside.in_switch;
  };
  for (const char* chip : {"v100-32gb-sxm", "a100-80gb-sxm", "anonymous", "mi300x"})
    CHECK(rate(chip, "fabric: nvswitch") == 0);
  for (const char* chip : {"h100-80gb-sxm", "h200", "h800"})
    CHECK(rate(chip, "fabric: nvswitch") == Approx(400e9 * 320 / 450));
  for (const char* chip : {"b200", "gb200", "gb300"})
    CHECK(rate(chip, "fabric: nvswitch") == Approx(400e9 * 560 / 900));
  CHECK(rate("h200", "fabric: nvlink_mesh") == 0);
  CHECK(rate("h200", "fabric: nvswitch, in_switch: none") == 0);
  CHECK(rate("h200", "fabric: nvswitch, in_switch: 100 GB/s") == 100e9);
}

TEST_CASE("only groups that stand node by node, evenly, go by rails") {
  const Cluster cluster = nodes_of(2, 3, 1e9, 1e8, 0);
  Program program = ranks_on(6);
  Group& group = program.groups.front();
  CHECK(shape_of(program, cluster, group).per_node == 3);
  group.ranks = {0_rank, 3_rank, 1_rank, 4_rank};
  CHECK(shape_of(program, cluster, group).per_node == 1);
  group.ranks = {0_rank, 1_rank, 3_rank};
  CHECK(shape_of(program, cluster, group).per_node == 1);
  group.ranks = {1_rank, 2_rank, 4_rank, 5_rank};
  CHECK(shape_of(program, cluster, group).per_node == 2);
}

TEST_CASE("sums in the switch of H200 take what was measured, and are chosen where NCCL chose them") {
  // Number of H200, and bus bandwidth of 8 GiB in GB/s: nccl-tests with NVLS, github:stas00/ml-engineering
  // network/README.md, 2025.
  const std::map<int, double> measured = {{5, 414.2}, {6, 435.6}, {7, 460.0}, {8, 473.1}};
  const std::int64_t bytes = std::int64_t{8} << 30;
  const std::string root = MOTLEY_SOURCE_DIR;
  const Cluster cluster = load_cluster(root + "/platforms/dgx-h200-pod.yaml");
  for (const auto& [gpus, bus] : measured) {
    const Program program = ranks_on(gpus);
    CostTable costs(program, cluster);
    CHECK(costs.algorithm_of(CollectiveKind::all_reduce, GroupId{}, CollectiveAlgorithm::automatic, bytes) ==
          CollectiveAlgorithm::in_switch);
    const double seconds =
        costs.collective(CollectiveKind::all_reduce, GroupId{}, CollectiveAlgorithm::in_switch)
            .seconds(bytes);
    const double priced = 2.0 * (gpus - 1) / gpus * static_cast<double>(bytes) / seconds / 1e9;
    CAPTURE(gpus, priced);
    CHECK(priced == Approx(bus).epsilon(0.05));
  }
}

TEST_CASE("a token that goes once to each node takes what DeepEP's dispatch and combine take") {
  // Logical bandwidth in GB/s: README of github:deepseek-ai/DeepEP, V2, 2026, H100, 8,192 tokens of 7,168, top 8 of
  // 256. Dispatch is in FP8, combine in BF16; the rows for 8 nodes are of V1 (docs/legacy.md there).
  struct Measured {
    int nodes, bytes;
    double logical, within;
  };
  for (const auto& [nodes, bytes, logical, within] : {Measured{2, 1, 90, 0.03},
                                                      {4, 1, 61, 0.03},
                                                      {8, 1, 51, 0.03},
                                                      {2, 2, 81, 0.12},
                                                      {4, 2, 61, 0.03},
                                                      {8, 2, 50, 0.04}}) {
    Cluster cluster = load_cluster(std::string(MOTLEY_SOURCE_DIR) + "/platforms/dgx-h100-pod.yaml");
    cluster.groups[0].nodes = nodes;
    build_topology(cluster);
    Program program = ranks_on(8 * nodes);
    program.groups.front().kind = GroupKind::expert;
    program.routing = {256, 8, 8, 4};
    CostTable costs(program, cluster);
    const std::int64_t tokens = 8192, row = std::int64_t{7168} * bytes;
    CHECK(costs.algorithm_of(CollectiveKind::all_to_all, GroupId{}, CollectiveAlgorithm::ring,
                             8 * tokens * row) == CollectiveAlgorithm::once_a_node);
    const CollectiveCost& cost =
        costs.collective(CollectiveKind::all_to_all, GroupId{}, CollectiveAlgorithm::once_a_node);
    const double a_node = distinct_copies(program.routing, 8 * nodes, 8).a_node * 8 / (8.0 * nodes);
    // The bytes include those for the sender's own node.
    const double moved = static_cast<double>(tokens * row) * a_node * nodes;
    CAPTURE(nodes, bytes);
    CHECK(moved / cost.seconds(8 * tokens * row) / 1e9 == Approx(logical).epsilon(within));
    CHECK(cost.seconds(8 * tokens * row) <
          costs.collective(CollectiveKind::all_to_all, GroupId{}, CollectiveAlgorithm::hierarchical)
                  .seconds(8 * tokens * row) /
              1.3);
  }
}

TEST_CASE("inside one node a token goes once to each rank that has any of its experts") {
  const Cluster cluster = nodes_of(1, 8, 1e9, 1, 0);
  Program program = ranks_on(8);
  program.groups.front().kind = GroupKind::expert;
  program.routing = {64, 8, 1, 1};
  CostTable costs(program, cluster);
  const double chance = distinct_copies(program.routing, 8, 8).a_rank;  // 8 copies, 8 ranks
  CHECK(chance < 0.7);
  const double taken_s =
      costs.collective(CollectiveKind::all_to_all, GroupId{}, CollectiveAlgorithm::once_a_node)
          .seconds(8'000'000);
  CHECK(taken_s == Approx(7 * chance * 1e6 / 1e9).epsilon(0.005));
  program.groups.front().kind = GroupKind::data;  // only all_to_alls of tokens do so
  CostTable others(program, cluster);
  CHECK(others.algorithm_of(CollectiveKind::all_to_all, GroupId{}, CollectiveAlgorithm::ring, 8) ==
        CollectiveAlgorithm::flat);
}
