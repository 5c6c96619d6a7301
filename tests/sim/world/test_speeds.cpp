// Chips, nodes and NICs with speeds of their own (Cluster::slow), and speeds that vary (Cluster::variation), over
// random jobs: order statistics against whole draws.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "models/explain/path_parts.hpp"
#include "models/explain/step_spread.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/simulated_draw.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr unsigned kFirstSpeeds = 5000, kSpeedDraws = 30;

template <class Check>
void for_every_job_at_speed(const Check& check) {
  for (unsigned seed = kFirstSpeeds; seed < kFirstSpeeds + kSpeedDraws; ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& run = simulated_draw(seed);
    Dice dice(seed);
    check(run, dice);
  }
}

double simulated_s(const SimulatedDraw& run, Cluster cluster) {
  Job job = run.job;
  job.cluster = std::move(cluster);
  build_topology(job.cluster);
  return duration_s(simulate_in_child(job, run.program));
}

Trace simulate_child(const Job& job, const Program& program) { return simulate_in_child(job, program); }

Variation any_variation(Dice& dice) {
  Variation variation;
  const auto any = [&] {
    return dice.once_in(2) ? Spread::normal(dice.one_of({0.01, 0.03}))
                           : Spread::measured({{0, 0.8}, {0.05, 0.9}, {0.05, 1}, {1, 1.02}});
  };
  variation.chips = any();
  if (dice.once_in(2)) variation.nodes = any();
  if (dice.once_in(2)) variation.nics = any();
  return variation;
}

}  // namespace

TEST_CASE("nodes at half the speed are nodes whose chips have half of every figure", "[laws]") {
  for_every_job_at_speed([](const SimulatedDraw& run, Dice&) {
    if (run.program.rank_programs.front().tensor_parallel > 1)
      return;  // launches are hidden behind collectives
    Cluster slow = run.job.cluster, worse = run.job.cluster;
    for (int node = 0; node <= slow.chip_node.back(); ++node)
      slow.slow.push_back(Slow{.node = node, .factor = 0.5});
    for (NodeGroup& group : worse.groups) {
      for (auto& [format, peak] : group.chip.peak_flops) peak.value /= 2;
      group.chip.memory_bandwidth.value /= 2;
      ChipSoftware& software = group.chip.software;
      for (Sourced ChipSoftware::*time :
           {&ChipSoftware::kernel_overhead, &ChipSoftware::step_overhead, &ChipSoftware::layer_launch,
            &ChipSoftware::expert_launch, &ChipSoftware::micro_batch_overhead, &ChipSoftware::pass_overhead})
        (software.*time).value *= 2;
    }
    CHECK(simulated_s(run, slow) == Approx(simulated_s(run, worse)).epsilon(1e-9));
  });
}

TEST_CASE("a slower chip, node or NIC shortens no step, but where fair sharing does", "[laws]") {
  int tried = 0, shorter = 0;
  for_every_job_at_speed([&](const SimulatedDraw& run, Dice& dice) {
    const double usual_s = duration_s(run.trace);
    const auto chip = static_cast<int>(dice.engine()() % at(run.job.cluster.chip_count()));
    const int node = run.job.cluster.chip_node[at(chip)];
    for (const Slow& slow : {Slow{.chip = chip, .factor = 0.7}, Slow{.node = node, .factor = 0.9},
                             Slow{.node = node, .nics = 0.5}}) {
      Cluster cluster = run.job.cluster;
      cluster.slow.push_back(slow);
      const double slow_s = simulated_s(run, cluster);
      ++tried;
      if (slow_s < usual_s * 0.995) ++shorter;
      CHECK(slow_s >= usual_s * 0.9);
      const double speed = std::min(slow.factor, slow.nics);
      CHECK(slow_s <= usual_s / speed * 1.05);
    }
  });
  CHECK(shorter * 50 <= tried);
}

TEST_CASE("a slow chip holds up its tensor-parallel group at every level, and the table names it", "[laws]") {
  Job job = tiny_job({2, 2, 2});
  job.cluster.slow = {Slow{.chip = 2, .factor = 0.5}};
  build_topology(job.cluster);
  std::vector<double> steps;
  for (const CollectiveLevel level :
       {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded}) {
    job.fidelity.tensor_parallel = level;
    const Program program = compile(job);
    const Report report = make_report(job, program, simulate_in_child(job, program));
    steps.push_back(report.iteration_s);
    const int stage = program.program_of(Rank(2)).stage;
    CHECK(report.breakdown[at(stage)].rank == Rank(2));
  }
  job.cluster.slow.clear();
  build_topology(job.cluster);
  const double usual_s = duration_s(simulate_in_child(job, compile(job)));
  for (const double step_s : steps) {
    CHECK(step_s == Approx(steps.front()).epsilon(0.1));
    CHECK(step_s > 1.1 * usual_s);
  }
}

TEST_CASE("computes that contain their collectives take as long on every chip of a tensor-parallel group") {
  Job job = tiny_job({2, 1, 2});
  job.fidelity.tensor_parallel = CollectiveLevel::formula;
  job.cluster.slow = {Slow{.chip = 2, .factor = 0.5}};
  build_topology(job.cluster);
  const Program program = compile(job);
  CostTable costs(program, job.cluster);
  const auto forward = [&](int rank) {
    const RankProgram& rank_program = program.program_of(Rank(rank));
    return costs.price(Rank(rank), rank_program.streams[kComputeStream].instructions.front());
  };
  const ComputeTime usual = forward(0), slow = forward(2), beside = forward(3);
  CHECK(slow.compute_s == 2 * usual.compute_s);
  CHECK(slow.tensor_parallel_s == usual.tensor_parallel_s);
  CHECK(beside.compute_s == usual.compute_s);
  CHECK(beside.seconds() == Approx(slow.seconds()));
}

TEST_CASE("what does not vary is expected as it is, and the mean lies between the percentiles", "[laws]") {
  for_every_job_at_speed([](const SimulatedDraw& run, Dice& dice) {
    if (kSanitized && !dice.once_in(4)) return;
    Job job = run.job;
    job.cluster.variation = any_variation(dice);
    const ExpectedStep expected = expect_step(job, run.program, simulate_child, run_one_by_one);
    const StepSpread& spread = expected.spread;
    CHECK_FALSE(expected.cluster.variation.has_value());
    CHECK(spread.alike_s == duration_s(run.trace));
    CHECK(spread.p5_s <= spread.p50_s);
    CHECK(spread.p50_s <= spread.p95_s);
    CHECK(spread.mean_s >= spread.p5_s * (1 - 1e-9));
    job.cluster.variation = Variation{};
    CHECK(!has_variation(job));
  });
}

// The assumption of step_spread.hpp, with its size: all parts together against the worst part alone.
TEST_CASE("order statistics expect the step of whole draws", "[laws]") {
  constexpr int kWhole = kSanitized ? 4 : 24;
  double sum = 0, squares = 0;
  int held = 0, tried = 0, jobs = 0;
  for_every_job_at_speed([&](const SimulatedDraw& run, Dice& dice) {
    if (!tries_every_draw() && !dice.once_in(kSanitized ? 5 : 2)) return;
    Job job = run.job;
    job.cluster.variation = any_variation(dice);
    const ExpectedStep expected = expect_step(job, run.program, simulate_child, run_one_by_one);
    const StepSpread& spread = expected.spread;
    const std::vector<double> drawn = drawn_steps(job, kWhole, simulate_child, run_one_by_one);
    const double mean_s =
        std::accumulate(drawn.begin(), drawn.end(), 0.0) / static_cast<double>(drawn.size());
    const double error = spread.mean_s / mean_s - 1;
    CAPTURE(error, spread.mean_s, mean_s, spread.p5_s, spread.p95_s, drawn.front(), drawn.back());
    CHECK(std::abs(error) < 0.05);
    CHECK(simulated_s(run, expected.cluster) == Approx(spread.mean_s).epsilon(0.03));
    sum += error;
    squares += error * error;
    ++jobs;
    for (const double step_s : drawn) {
      ++tried;
      if (step_s >= spread.p5_s * 0.995 && step_s <= spread.p95_s * 1.005) ++held;
    }
  });
  const double bias = sum / jobs, deviation = std::sqrt(squares / jobs);
  WARN(jobs << " jobs: bias " << 100 * bias << " %, rms " << 100 * deviation << " %, held "
            << 100.0 * held / tried << " % of draws between p5 and p95");
  CHECK(std::abs(bias) < 0.01);
  CHECK(deviation < 0.02);
  CHECK(held * 10 >= tried * 8);
}

// With many parts the slowest of them is far from the middle, which the small clusters of random jobs do not show.
TEST_CASE("order statistics expect the step of whole draws of 128 chips", "[laws]") {
  const bool sharded = GENERATE(false, true);
  Job job = tiny_job({1, 1, 1});
  job.cluster.groups[0].chips_per_node = 2;
  job.cluster.groups[0].nodes = 64;
  job.cluster.groups[0].nics = {{NicKind::infiniband, 1, 1e10, 5e-6}};
  job.train.global_batch = 8 * 128;
  job.strategy = expand(job.transformer, job.train, 1, sharded ? 1 : 2, sharded ? 128 : 64);
  if (sharded) job.strategy.zero = 1;
  job.cluster.variation.emplace();
  job.cluster.variation->chips = Spread::normal(0.03);
  if (sharded) job.cluster.variation->nodes = Spread::measured({{0, 0.9}, {0.01, 0.9}, {0.01, 1}, {1, 1}});
  build_topology(job.cluster);
  const Program program = compile(job);
  const StepSpread spread = expect_step(job, program, simulate_child, run_one_by_one).spread;
  const std::vector<double> drawn = drawn_steps(job, kSanitized ? 4 : 40, simulate_child, run_one_by_one);
  const double mean_s = std::accumulate(drawn.begin(), drawn.end(), 0.0) / static_cast<double>(drawn.size());
  CAPTURE(sharded, spread.alike_s, spread.mean_s, spread.p5_s, spread.p95_s, mean_s, drawn.front(),
          drawn.back());
  CHECK(spread.mean_s > 1.03 * spread.alike_s);
  CHECK(spread.mean_s == Approx(mean_s).epsilon(kSanitized ? 0.03 : 0.01));
  CHECK(drawn[drawn.size() / 2] <= spread.p95_s);
  CHECK(drawn[drawn.size() / 2] >= spread.p5_s);
}
