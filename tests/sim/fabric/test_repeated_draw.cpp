// Networks that choose spines by hash: what one rank of each class gives on a repeated draw, beside all ranks on their
// own draws.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "models/cluster/switches.hpp"
#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "sim/fabric/fold.hpp"
#include "sim/fabric/repeated_draw.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Drawn {
  int nodes = 16;
  Degrees degrees;
  std::int64_t micro_batches = 4;
  Network network;
};

Network leaves_of(NetworkShape shape, int nodes, int spines, double oversubscription) {
  Network network;
  network.over = NicKind::infiniband;
  network.shape = shape;
  network.nodes_per_leaf = nodes;
  network.spines = spines;
  network.oversubscription = oversubscription;
  return network;
}

Job job_on(const Drawn& drawn) {
  Job job = tiny_job({1, 1, 1});
  job.train.global_batch = drawn.degrees.dp * job.train.micro_batch * drawn.micro_batches;
  job.strategy = expand(job.transformer, job.train, drawn.degrees.tp, drawn.degrees.pp, drawn.degrees.dp);
  job.cluster = {};
  job.cluster.name = "leaves";
  NodeGroup group;
  group.name = "all";
  group.nodes = drawn.nodes;
  group.chip = tiny_chip();
  group.chips_per_node = 4;
  group.inside = {FabricKind::nvswitch, 1e9, 2e-6};
  group.nics = {{NicKind::infiniband, 4, 1e8, 5e-6}};
  job.cluster.groups = {group};
  job.cluster.networks = {drawn.network};
  build_topology(job.cluster);
  return job;
}

void redraw(Job& job, int draw) {
  for (NetworkLayout& layout : job.cluster.network_layout) layout.draw = draw;
}

double step_of(Job job, bool fold) {
  job.fidelity.fold = fold;
  const Program program = compile(job);
  return make_report(job, program, simulate_in_child(job, program)).iteration_s;
}

double step_adaptive(Job job) {
  job.cluster.networks[0].routing = Routing::adaptive;
  build_topology(job.cluster);
  return step_of(job, true);
}

Drawn any_drawn(Dice& dice) {
  Drawn drawn;
  drawn.nodes = dice.one_of({16, 32, 64});
  const std::int64_t pp = dice.one_of<std::int64_t>({1, 1, 2, 4}), tp = dice.one_of<std::int64_t>({1, 2, 4});
  drawn.degrees = {tp, pp, 4 * drawn.nodes / (tp * pp)};
  drawn.network =
      leaves_of(dice.one_of({NetworkShape::leaf_spine, NetworkShape::rail_optimised}),
                dice.one_of({4, 8, 16}), dice.one_of({2, 4, 8, 16, 32}), dice.one_of({1.0, 1.5, 2.0, 4.0}));
  return drawn;
}

Job any_job_on(const Drawn& drawn, Dice& dice) {
  Job job = job_on(drawn);
  job.strategy.overlap_gradients = dice.once_in(2);
  job.strategy.bucket_bytes = dice.one_of({10'000, 1'000'000});
  job.strategy.schedule = dice.one_of({Schedule::gpipe, Schedule::one_f_one_b});
  job.fidelity.data_parallel =
      dice.one_of({CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::fluid});
  redraw(job, static_cast<int>(dice.engine()() % 1000));
  return job;
}

}  // namespace

TEST_CASE("a repeated draw gives the step of all draws, with no bias", "[draw]") {
  const int cases = std::getenv("DRAWS") != nullptr ? std::atoi(std::getenv("DRAWS")) : 60;
  double sum = 0, apart = 0, adaptive = 0;
  for (int seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    Dice dice(static_cast<unsigned>(seed));
    const Drawn drawn = any_drawn(dice);
    const Job job = any_job_on(drawn, dice);
    CAPTURE(drawn.nodes, drawn.degrees.tp, drawn.degrees.pp, int(drawn.network.shape),
            drawn.network.nodes_per_leaf, drawn.network.spines, drawn.network.oversubscription);
    const double all = step_of(job, false), some = step_of(job, true), off = some / all - 1;
    if (std::getenv("DRAWS"))
      printf("%d %g adaptive %g pp %d\n", seed, 100 * off, 100 * (step_adaptive(job) / all - 1),
             int(drawn.degrees.pp));
    CHECK(std::abs(off) < 0.1);
    sum += off;
    apart += std::abs(off);
    adaptive += std::abs(step_adaptive(job) / all - 1);
  }
  if (std::getenv("DRAWS"))
    printf("mean %g apart %g adaptive %g\n", 100 * sum / cases, 100 * apart / cases, 100 * adaptive / cases);
  CHECK(std::abs(sum) / cases < 0.01);
  CHECK(apart / cases < 0.02);
  CHECK(adaptive / cases > 5 * apart / cases);  // the draws matter
}
