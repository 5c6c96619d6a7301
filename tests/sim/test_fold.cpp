// Folded equals unfolded: simulating one of each set of tensor-parallel peers gives the same times.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/refusal.hpp"
#include "tests/models/tiny_job.hpp"
#include "tests/sim/hand_made.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Nodes {
  int count = 2, chips = 4, nics = 4;
};

Job job_on(Nodes nodes, Degrees degrees) {
  Job job = tiny_job(degrees);
  job.cluster = {};
  job.cluster.name = "nodes";
  NodeGroup group;
  group.name = "all";
  group.nodes = nodes.count;
  group.chip = tiny_chip();
  group.chips_per_node = nodes.chips;
  group.inside = {FabricKind::nvswitch, 1e9, 2e-6};
  if (nodes.nics > 0) group.nics = {{NicKind::infiniband, nodes.nics, 1e8, 5e-6}};
  job.cluster.groups.push_back(group);
  build_topology(job.cluster);
  return job;
}

double furthest_apart(const Trace& folded, const Trace& all) {
  double apart = 0;
  std::size_t i = 0;
  for (const TraceEvent& event : folded.events) {
    while (!(all.events.at(i).step == event.step)) ++i;
    const TraceEvent& same = all.events[i];
    apart = std::max({apart, std::abs(event.begin_s - same.begin_s), std::abs(event.end_s - same.end_s),
                      std::abs(event.matched_s - same.matched_s)});
  }
  return apart;
}

std::string why_unfoldable(Job job) {
  job.fidelity.fold_tensor_parallel = true;
  try {
    simulate_in_child(job, compile(job));
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "unfoldable");
    return refusal.what();
  }
  return "folded";
}

}  // namespace

TEST_CASE("folded equals unfolded") {
  struct Case {
    Nodes nodes;
    Degrees degrees;
  };
  const std::vector<Case> cases = {
      {{1, 4, 0}, {4, 1, 1}},  // one node, no NIC
      {{2, 4, 4}, {4, 2, 1}},  // a NIC a chip
      {{2, 4, 2}, {4, 1, 2}},  // two chips share a NIC
      {{2, 8, 4}, {4, 2, 2}},  // 8 chips on 4 NICs, two replicas a node
      {{2, 8, 2}, {4, 2, 2}},  // four peers on a NIC of their own
      {{2, 8, 1}, {2, 4, 2}},  // everybody on one NIC
      {{4, 4, 1}, {4, 2, 2}},
  };
  for (const Case& each : cases)
    for (CollectiveLevel data : {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded})
      for (CollectiveLevel tensor :
           {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded}) {
        Job job = job_on(each.nodes, each.degrees);
        job.fidelity.data_parallel = data;
        job.fidelity.tensor_parallel = tensor;
        job.strategy.overlap_gradients = true;
        job.strategy.bucket_bytes = 10'000;
        const Program program = compile(job);
        const Trace all = simulate_in_child(job, program);
        job.fidelity.fold_tensor_parallel = true;
        const Trace folded = simulate_in_child(job, program);
        CAPTURE(each.nodes.chips, each.nodes.nics, each.degrees.tp, int(data), int(tensor));
        CHECK(folded.events.size() * static_cast<std::size_t>(each.degrees.tp) == all.events.size());
        CHECK(furthest_apart(folded, all) <= 1e-9 * end_of(all));
      }
}

TEST_CASE("peers that are not proved alike are not folded") {
  // Four chips on three NICs: two peers share one, two have one each.
  CHECK_THAT(why_unfoldable(job_on({2, 4, 3}, {4, 2, 1})), Catch::Contains("2 share one link and 1 another"));
  // Peers on two nodes.
  CHECK_THAT(why_unfoldable(job_on({2, 2, 2}, {4, 1, 1})), Catch::Contains("are on different nodes"));
}
