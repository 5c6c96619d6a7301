// Networks that choose spines by hash: what one rank of each class gives on a repeated draw, beside all ranks on their
// own draws.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "sim/fold/fold.hpp"
#include "sim/fold/repeated_draw.hpp"
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
  const double oversubscription = dice.one_of({1.0, 1.5, 2.0, 4.0});
  const int spines = dice.one_of({2, 4, 8, 16, 32}), nodes_per_leaf = dice.one_of({4, 8, 16});
  drawn.network = leaves_of(dice.one_of({NetworkShape::leaf_spine, NetworkShape::rail_optimised}),
                            nodes_per_leaf, spines, oversubscription);
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

// The jobs of this test are small, so that they mostly wait for messages: without hashing, their steps are a fifth
// shorter on average.
TEST_CASE("a repeated draw gives the step that every flow's own draw gives, without bias", "[draw][slow]") {
  constexpr int kCases = 60;
  double bias = 0, apart = 0, adaptive_apart = 0;
  for (unsigned seed = 0; seed < kCases; ++seed) {
    Dice dice(seed);
    const Job job = any_job_on(any_drawn(dice), dice);
    const double own = step_of(job, false), repeated = step_of(job, true);
    CAPTURE(seed, own, repeated);
    CHECK(std::abs(repeated / own - 1) < 0.25);
    bias += (repeated / own - 1) / kCases;
    apart += std::abs(repeated / own - 1) / kCases;
    adaptive_apart += std::abs(step_adaptive(job) / own - 1) / kCases;
  }
  CHECK(std::abs(bias) < 0.01);
  CHECK(apart < 0.015);
  CHECK(adaptive_apart > 0.1);  // otherwise nothing was tested
}

// A pipeline may gain: flows that meet at different links stop arriving together, and then share fewer links.
TEST_CASE("hashing makes no step without a pipeline shorter", "[draw]") {
  for (unsigned seed = 100; seed < 140; ++seed) {
    Dice dice(seed);
    Drawn drawn = any_drawn(dice);
    drawn.degrees.dp *= drawn.degrees.pp;
    drawn.degrees.pp = 1;
    const Job job = any_job_on(drawn, dice);
    CAPTURE(seed);
    CHECK(step_of(job, true) >= step_adaptive(job) * (1 - 1e-6));
  }
}

TEST_CASE("less oversubscription, and more spines of the same bandwidth, make no step longer",
          "[draw][slow]") {
  constexpr int kDraws = 6;
  for (unsigned seed = 200; seed < 212; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Drawn drawn = any_drawn(dice);
    drawn.network.nodes_per_leaf = 4;
    const auto mean_step = [&](int spines, double uplink) {
      Drawn changed = drawn;
      changed.network.spines = spines;
      changed.network.uplink = uplink;
      Job job = job_on(changed);
      double sum = 0;
      for (int draw = 0; draw < kDraws; ++draw) {
        redraw(job, draw);
        sum += step_of(job, true);
      }
      return sum / kDraws;
    };
    const double few = mean_step(4, 1e8), many = mean_step(16, 1e8), wide = mean_step(4, 2e8);
    CHECK(many <= few * 1.02);
    CHECK(wide <= few * 1.005);
  }
}

TEST_CASE("a repeated draw leaves few ranks to simulate, the same whenever it is drawn", "[draw]") {
  Job job = job_on({64, {4, 4, 16}, 4, leaves_of(NetworkShape::rail_optimised, 4, 8, 2)});
  const Program program = compile(job);
  const auto classes_on = [&](const Cluster& cluster) {
    Job drawn = job;
    drawn.cluster = cluster;
    CostTable costs(program, cluster);
    return fold(drawn, program, costs, {true, {}}).symmetry.ranks.first.size();
  };
  const std::optional<Cluster> repeated = repeat_draw(job, program);
  REQUIRE(repeated.has_value());
  CHECK(classes_on(job.cluster) == 256);
  CHECK(classes_on(*repeated) <= 64);
  job.fidelity.fold = true;
  const Trace once = simulate_in_child(job, program), again = simulate_in_child(job, program);
  CHECK(once.events == again.events);
}

TEST_CASE("where no two leaves are alike, or no flow leaves its leaf, every flow keeps its own draw",
          "[draw]") {
  Job adaptive = job_on({16, {4, 4, 4}, 4, leaves_of(NetworkShape::rail_optimised, 4, 8, 2)});
  adaptive.cluster.networks[0].routing = Routing::adaptive;
  build_topology(adaptive.cluster);
  CHECK(!repeat_draw(adaptive, compile(adaptive)).has_value());
  const Job inside = job_on({16, {4, 1, 16}, 4, leaves_of(NetworkShape::leaf_spine, 16, 8, 2)});
  CHECK(!repeat_draw(inside, compile(inside)).has_value());
  CHECK(step_of(inside, true) == Approx(step_of(inside, false)).epsilon(1e-9));
}
