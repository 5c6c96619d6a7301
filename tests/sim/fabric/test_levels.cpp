// The three levels of detail of a collective agree: the closed form, one flow for each edge, and every message of every
// round. On idle fabrics each algorithm over random groups, latencies and sizes; where links are shared whole steps.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "models/base/yaml_reader.hpp"
#include "models/cost/collective_cost.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Fabrics {
  FabricKind inside;
  double bandwidth;
};

Cluster drawn_cluster(Dice& dice) {
  const auto [kind, bandwidth] = dice.one_of<Fabrics>(
      {{FabricKind::nvswitch, 450e9}, {FabricKind::xgmi_mesh, 448e9}, {FabricKind::nvlink_mesh, 150e9}});
  const double latency_s = dice.one_of({1e-6, 1e-5, 1e-4});
  Cluster cluster = one_node(dice.one_of({1, 2, 4, 8}), {kind, bandwidth, latency_s});
  NodeGroup& group = cluster.groups[0];
  group.nodes = dice.one_of({1, 2, 3, 4, 6});
  if (group.nodes * group.chips_per_node == 1) group.nodes = 2;
  group.nics = {{dice.one_of({NicKind::infiniband, NicKind::roce, NicKind::ethernet}),
                 dice.one_of({1, group.chips_per_node}), dice.one_of({3.125e9, 12.5e9, 50e9}),
                 dice.one_of({1e-6, 1e-5, 1e-4})}};
  build_topology(cluster);
  return cluster;
}

double seconds_at(CollectiveLevel level, const Cluster& cluster, const CollectiveTask& task,
                  CollectiveAlgorithm algorithm, std::int64_t bytes) {
  Fidelity fidelity;
  fidelity.data_parallel = level;
  fidelity.algorithm = algorithm;
  fidelity.fold = true;
  HandMade p(cluster, fidelity);
  std::vector<Rank> members;
  for (Rank rank : p.program.ranks.ids()) members.push_back(rank);
  p.group(GroupKind::data, kDataGroup, members);
  Collective collective;
  collective.kind = task.kind;
  collective.root = task.root;
  collective.slot = kDataGroup;
  collective.bytes = bytes;
  for (Rank rank : members) p.add_collective(rank, collective);
  return end_of(p.run());
}

}  // namespace

TEST_CASE("formula, fluid and expanded collectives agree on random idle fabrics") {
  int compared = 0;
  for (unsigned seed = 0; seed < (kSanitized ? 16 : 80); ++seed) {
    Dice dice(seed);
    const Cluster cluster = drawn_cluster(dice);
    auto kind = dice.one_of({CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                             CollectiveKind::all_gather, CollectiveKind::all_to_all});
    if (seed % 2 == 1)
      kind = dice.one_of({CollectiveKind::broadcast, CollectiveKind::reduce, CollectiveKind::gather,
                          CollectiveKind::scatter, CollectiveKind::barrier});
    const unsigned root = is_rooted(kind) ? dice.engine()() % static_cast<unsigned>(cluster.chip_count()) : 0;
    const CollectiveTask task{kind, static_cast<int>(root)};
    const std::int64_t bytes = dice.one_of({1 << 16, 1 << 22, 1 << 27, 1 << 30});
    HandMade p(cluster);
    std::vector<Rank> members;
    for (Rank rank : p.program.ranks.ids()) members.push_back(rank);
    p.group(GroupKind::data, kDataGroup, members);
    for (const CollectiveCost& cost : collective_costs(p.program, cluster, p.program.groups.front(), task)) {
      const NodeGroup& nodes = cluster.groups[0];
      const double formula = seconds_at(CollectiveLevel::formula, cluster, task, cost.algorithm, bytes);
      const double fluid = seconds_at(CollectiveLevel::fluid, cluster, task, cost.algorithm, bytes);
      const double expanded = seconds_at(CollectiveLevel::expanded, cluster, task, cost.algorithm, bytes);
      CAPTURE(seed, name_of(kind), root, name_of(cost.algorithm), bytes, nodes.nodes, nodes.chips_per_node);
      CAPTURE(name_of(nodes.inside.kind), nodes.inside.latency_s, name_of(nodes.nics[0].kind));
      CAPTURE(nodes.nics[0].count, nodes.nics[0].bandwidth, nodes.nics[0].latency_s);
      CHECK(fluid == Approx(formula).epsilon(1e-6));
      CHECK(expanded == Approx(formula).epsilon(0.01));
      ++compared;
    }
  }
  CHECK(compared > (kSanitized ? 30 : 180));
}

namespace {

double step_at(const std::string& level, int nodes, int latency_us, const std::string& nics,
               const std::string& strategy) {
  const std::string text = fmt::format(
      "model: tinyllama-1.1b\n"
      "cluster:\n"
      "  groups:\n"
      "    - {{name: all, nodes: {0}, chip: h100-80gb-sxm, chips_per_node: 8,\n"
      "       inside: {{fabric: nvswitch, bandwidth: 450 GB/s, latency: {1} us}},\n"
      "       nics: [{{kind: infiniband, {2}, latency: {1} us}}]}}\n"
      "train: {{global_batch: {3}, sequence: 2048, precision: bf16}}\n"
      "strategy: {4}\n"
      "fidelity: {{data_parallel: {5}, fold: true}}\n",
      nodes, latency_us, nics, nodes * 16, strategy, level);
  const Job job = read_scenario(parse_yaml(text, "levels.yaml"), "levels.yaml").job;
  return end_of(simulate_in_child(job, compile(job)));
}

}  // namespace

// Groups that share NICs, and gathers beside reductions: what an idle fabric does not show.
TEST_CASE("fluid steps take what expanded steps take within a tenth where collectives share links") {
  double furthest = 0, most_shared = 1;
  for (int nodes : {2, 8})
    for (int latency_us : {1, 10, 100})
      for (const char* nics : {"count: 8, bandwidth: 400 Gb/s", "count: 1, bandwidth: 100 Gb/s"})
        for (const char* strategy : {"{dp: DP, zero: 3}", "{dp: DP, zero: 1, overlap: {gradients: true}}",
                                     "{tp: 2, dp: DP, zero: 2}", "{pp: 2, dp: DP, zero: 1}"}) {
          if (kSanitized && (nodes == 8 || latency_us != 10)) continue;
          std::string degrees = strategy;
          const bool halves = degrees.find("p: 2") != std::string::npos;
          degrees.replace(degrees.find("DP"), 2, std::to_string(nodes * 8 / (halves ? 2 : 1)));
          CAPTURE(nodes, latency_us, nics, degrees);
          const double fluid = step_at("fluid", nodes, latency_us, nics, degrees);
          const double expanded = step_at("expanded", nodes, latency_us, nics, degrees);
          CHECK(fluid == Approx(expanded).epsilon(0.1));
          furthest = std::max(furthest, std::abs(fluid / expanded - 1));
          most_shared = std::max(most_shared, fluid / step_at("formula", nodes, latency_us, nics, degrees));
        }
  CHECK(furthest > 0);       // otherwise both were the same level
  CHECK(most_shared > 1.5);  // otherwise nothing was shared
}
