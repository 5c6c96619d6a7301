// Each kind of collective in the Sim world: closed forms on an idle fabric, contention, and what is refused.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/cluster/message_cost.hpp"
#include "models/cost/collective_cost.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/network_cost.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_gather, CollectiveKind::all_to_all};
constexpr CollectiveLevel kLevels[] = {CollectiveLevel::formula, CollectiveLevel::fluid,
                                       CollectiveLevel::expanded};

HandMade group_of(int ranks, Cluster cluster, CollectiveLevel level) {
  Fidelity fidelity;
  fidelity.data_parallel = level;
  HandMade p(std::move(cluster), fidelity);
  std::vector<Rank> members;
  for (Rank rank : IdRange<Rank>(at(ranks))) members.push_back(rank);
  p.group(GroupKind::data, kDataGroup, members);
  return p;
}

double seconds_of(CollectiveKind kind, const Cluster& cluster, CollectiveLevel level, std::int64_t bytes,
                  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring) {
  HandMade p = group_of(cluster.chip_count(), cluster, level);
  p.job.fidelity.algorithm = algorithm;
  for (Rank rank : IdRange<Rank>(at(cluster.chip_count()))) p.collective(kind, rank, kDataGroup, bytes);
  return end_of(p.run());
}

// Two nodes with two chips and one NIC each.
Cluster two_nodes() {
  Cluster cluster = one_node(2, {FabricKind::loopback, 1e9, 0});
  cluster.groups[0].nodes = 2;
  cluster.groups[0].nics = {{NicKind::infiniband, 1, 1e8, 0}};
  build_topology(cluster);
  return cluster;
}

}  // namespace

TEST_CASE("each kind of collective on an idle fabric takes its closed form at every level") {
  const std::int64_t bytes = 24'000'000;
  for (CollectiveKind kind : kKinds)
    for (int ranks : {2, 3, 4, 8})
      for (CollectiveLevel level : kLevels) {
        const double steps = (kind == CollectiveKind::all_reduce ? 2.0 : 1.0) * (ranks - 1);
        const double latency_s =
            kind == CollectiveKind::all_to_all ? 1e-5 + (ranks - 2) * 0.4e-6 : steps * 1e-5;
        const double closed = latency_s + steps * static_cast<double>(bytes) / (ranks * 1e9);
        CAPTURE(name_of(kind), ranks, static_cast<int>(level));
        CHECK(seconds_of(kind, one_node(ranks), level, bytes) == Approx(closed).epsilon(1e-6));
      }
}

TEST_CASE("a reduce_scatter and an all_gather in turn take what the all_reduce takes") {
  for (CollectiveLevel level : kLevels) {
    HandMade p = group_of(4, one_node(4), level);
    for (Rank rank : IdRange<Rank>(at(4))) {
      p.collective(CollectiveKind::reduce_scatter, rank, kDataGroup, 4'000'000);
      p.collective(CollectiveKind::all_gather, rank, kDataGroup, 4'000'000);
    }
    const double whole = seconds_of(CollectiveKind::all_reduce, one_node(4), level, 4'000'000);
    CHECK(end_of(p.run()) == Approx(whole).epsilon(1e-6));
  }
}

TEST_CASE("an all_to_all across nodes takes what its most loaded link needs") {
  // Each of the two chips of a node sends two of its four parts through the node's NIC.
  const std::int64_t bytes = 40'000'000;
  const Cluster cluster = two_nodes();
  const HandMade p = group_of(4, cluster, CollectiveLevel::formula);
  const double efficiency = route(cluster, 0, 2).rate / route(cluster, 0, 2).bandwidth;
  const RingCost pairs = pairwise_cost(p.program, cluster, p.program.groups.front());
  const double wire_s = 4 * 1e7 / (1e8 * efficiency);
  CHECK(3 * 1e7 / pairs.bandwidth == Approx(wire_s).epsilon(1e-9));
  const double formula = seconds_of(CollectiveKind::all_to_all, cluster, CollectiveLevel::formula, bytes);
  const double fluid = seconds_of(CollectiveKind::all_to_all, cluster, CollectiveLevel::fluid, bytes);
  const double expanded = seconds_of(CollectiveKind::all_to_all, cluster, CollectiveLevel::expanded, bytes);
  CHECK(formula > wire_s);
  CHECK(fluid == Approx(formula).epsilon(1e-6));
  CHECK(expanded == Approx(formula).epsilon(1e-6));
}

TEST_CASE("messages of an all_to_all are posted together: one latency, and little for each further one") {
  Cluster cluster = one_node(8, {FabricKind::nvswitch, 450e9, 2e-6});
  cluster.groups[0].nodes = 4;
  cluster.groups[0].nics = {{NicKind::infiniband, 8, 50e9, 5e-6}};
  build_topology(cluster);
  const HandMade p = group_of(32, cluster, CollectiveLevel::formula);
  const double slowest_s = route(cluster, 0, 8).latency_s + message_cost_of(cluster, 0, 8).software_latency_s;
  for (CollectiveLevel level : kLevels)
    CHECK(seconds_of(CollectiveKind::all_to_all, cluster, level, 0) ==
          Approx(slowest_s + 23 * 2e-6).epsilon(1e-6));  // 24 are on other nodes; the others end earlier
  CHECK(pairwise_cost(p.program, cluster, p.program.groups.front()).latency_s ==
        Approx((slowest_s + 23 * 2e-6) / 31).epsilon(1e-9));
}

TEST_CASE("a fluid collective of each kind slows a transfer on its links, and is slowed by it") {
  for (CollectiveKind kind : kKinds) {
    const std::int64_t bytes = 1'200'000'000;
    HandMade p = group_of(4, one_node(4, {FabricKind::loopback, 1e9, 0}), CollectiveLevel::fluid);
    for (Rank rank : IdRange<Rank>(at(4))) p.collective(kind, rank, kDataGroup, bytes);
    p.join(0_rank, 1_rank);
    p.send(0_rank, kNext, 100'000'000);
    const After received = p.recv(1_rank, kPrevious, 100'000'000);
    const Trace trace = p.run();
    const double alone = collective_steps(kind, 4) * 0.3;
    CAPTURE(name_of(kind));
    CHECK(event_of(trace, 1_rank, received).end_s > 0.1 * 1.5);
    CHECK(end_of(trace) > alone * 1.01);
  }
}

TEST_CASE("collectives of one byte or none end at every level") {
  for (CollectiveKind kind : kKinds)
    for (CollectiveLevel level : kLevels) {
      const std::int64_t least = kind == CollectiveKind::all_to_all ? 3 : 1;
      CAPTURE(name_of(kind), static_cast<int>(level));
      // The two messages of an all_to_all are posted together.
      const double latency_s =
          kind == CollectiveKind::all_to_all ? 1e-5 + 0.4e-6 : collective_steps(kind, 3) * 1e-5;
      CHECK(seconds_of(kind, one_node(3), level, 0) == Approx(latency_s));
      CHECK(seconds_of(kind, one_node(3), level, least) >= latency_s * (1 - 1e-9));
    }
}

TEST_CASE("every algorithm on a uniform idle fabric takes its closed form at every level") {
  int seen = 0;
  for (CollectiveKind kind : kKinds)
    for (int ranks : {2, 3, 4, 5, 7, 8}) {
      Cluster cluster = one_node(ranks);
      cluster.groups[0].inside.in_switch = 8e8;
      const HandMade p = group_of(ranks, cluster, CollectiveLevel::formula);
      for (const CollectiveCost& cost :
           collective_costs(p.program, cluster, p.program.groups.front(), kind)) {
        const std::int64_t bytes = 16 * 2 * 3 * 5 * 7 * 1000;  // all chunks are equal
        const auto at_level = [&](CollectiveLevel level) {
          return seconds_of(kind, cluster, level, bytes, cost.algorithm);
        };
        CAPTURE(name_of(kind), name_of(cost.algorithm), ranks);
        const double formula = at_level(CollectiveLevel::formula);
        CHECK(formula == Approx(cost.seconds(bytes)).epsilon(1e-9));
        CHECK(at_level(CollectiveLevel::fluid) == Approx(formula).epsilon(1e-6));
        const double expanded = at_level(CollectiveLevel::expanded);
        CHECK(expanded >= cost.least_s_per_byte * bytes * (1 - 1e-9));
        // No member waits for rounds of other members, so two trees may end earlier.
        if (cost.algorithm == CollectiveAlgorithm::double_binary_tree)
          CHECK(expanded <= formula * (1 + 1e-6));
        else
          CHECK(expanded == Approx(formula).epsilon(1e-6));
        ++seen;
      }
    }
  CHECK(seen >= 6 * 8);
}

TEST_CASE("across nodes every algorithm at every level takes no less than its most loaded link needs") {
  Cluster cluster = one_node(4, {FabricKind::loopback, 1e9, 1e-6});
  cluster.groups[0].nodes = 3;
  cluster.groups[0].nics = {{NicKind::infiniband, 2, 1e8, 5e-6}};
  build_topology(cluster);
  for (CollectiveKind kind : kKinds) {
    const HandMade p = group_of(12, cluster, CollectiveLevel::formula);
    for (const CollectiveCost& cost : collective_costs(p.program, cluster, p.program.groups.front(), kind)) {
      CAPTURE(name_of(kind), name_of(cost.algorithm));
      double last_expanded = 0;
      for (const std::int64_t bytes :
           {std::int64_t{1'200}, std::int64_t{1'200'000}, std::int64_t{12'000'000}}) {
        const auto at_level = [&](CollectiveLevel level) {
          return seconds_of(kind, cluster, level, bytes, cost.algorithm);
        };
        const double formula = at_level(CollectiveLevel::formula);
        CHECK(at_level(CollectiveLevel::fluid) == Approx(formula).epsilon(1e-6));
        const double expanded = at_level(CollectiveLevel::expanded);
        CHECK(expanded >= cost.least_s_per_byte * static_cast<double>(bytes) * (1 - 1e-9));
        CHECK(expanded > last_expanded);
        last_expanded = expanded;
      }
    }
  }
}

TEST_CASE("rings over nodes take what their NICs need, at every level") {
  Cluster cluster = one_node(4, {FabricKind::loopback, 1e9, 1e-6});
  cluster.groups[0].nodes = 3;
  cluster.groups[0].nics = {{NicKind::infiniband, 4, 1e8, 1e-6}};
  build_topology(cluster);
  const std::int64_t bytes = 480'000'000;
  const double rate = 4 * 1e8 * route(cluster, 0, 4).rate / route(cluster, 0, 4).bandwidth;
  for (CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather})
    for (CollectiveLevel level : kLevels) {
      const double wire_s = collective_steps(kind, 12) / 12.0 * static_cast<double>(bytes) / rate;
      CAPTURE(name_of(kind), static_cast<int>(level));
      const double taken_s = seconds_of(kind, cluster, level, bytes);
      CHECK(taken_s > wire_s);
      CHECK(taken_s < wire_s * 1.03);
    }
}

TEST_CASE("the fastest and the automatic algorithm take at every level what the one they come to takes") {
  const Cluster cluster = one_node(8);
  HandMade p = group_of(8, cluster, CollectiveLevel::formula);
  for (std::int64_t bytes : {std::int64_t{840}, std::int64_t{8'400'000}})
    for (CollectiveAlgorithm wanted : {CollectiveAlgorithm::fastest, CollectiveAlgorithm::automatic}) {
      CostTable costs(p.program, cluster);
      const CollectiveAlgorithm taken =
          costs.algorithm_of(CollectiveKind::all_reduce, GroupId{}, wanted, bytes);
      CAPTURE(name_of(taken), bytes);
      for (CollectiveLevel level : kLevels)
        CHECK(seconds_of(CollectiveKind::all_reduce, cluster, level, bytes, wanted) ==
              seconds_of(CollectiveKind::all_reduce, cluster, level, bytes, taken));
    }
}

TEST_CASE("tokens that go once to each node take at every level what their most loaded link needs, or more") {
  for (const int nodes : {1, 3}) {
    Cluster cluster = one_node(4, {FabricKind::loopback, 1e9, 1e-6});
    cluster.groups[0].nodes = nodes;
    cluster.groups[0].nics = {{NicKind::infiniband, 4, 1e8, 5e-6}};
    build_topology(cluster);
    std::vector<Rank> members;
    for (Rank rank : IdRange<Rank>(at(cluster.chip_count()))) members.push_back(rank);
    const auto seconds = [&](CollectiveLevel level, bool fold, std::int64_t experts) {
      Fidelity fidelity;
      fidelity.data_parallel = level;
      fidelity.fold = fold;
      HandMade p(cluster, fidelity);
      p.program.routing = {experts, 4, 1, 1};
      p.group(GroupKind::expert, kDataGroup, members);
      for (const Rank rank : members) p.collective(CollectiveKind::all_to_all, rank, kDataGroup, 120'000'000);
      CostTable costs(p.program, cluster);
      const double formula =
          costs
              .collective(CollectiveKind::all_to_all, GroupId{},
                          experts > 0 ? CollectiveAlgorithm::once_a_node : CollectiveAlgorithm::flat)
              .seconds(120'000'000);
      return std::pair{end_of(p.run()), formula};
    };
    for (const bool fold : {false, true}) {
      CAPTURE(nodes, fold);
      const auto [formula, closed] = seconds(CollectiveLevel::formula, fold, 12);
      CHECK(formula == Approx(closed).epsilon(1e-9));
      CHECK(seconds(CollectiveLevel::fluid, fold, 12).first == Approx(closed).epsilon(1e-4));
      CHECK(seconds(CollectiveLevel::expanded, fold, 12).first >= closed * 0.94);
      CHECK(seconds(CollectiveLevel::fluid, fold, 0).first > closed * 1.2);
    }
  }
}
