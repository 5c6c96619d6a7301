// Kernels whose speeds were measured among busy ranks, on nodes where fewer ranks compute.
#include <catch2/catch.hpp>
#include <random>

#include "models/compile/compile.hpp"
#include "models/cost/busy_ranks.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/rated_kernels.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Every kind of kernel of the job has a speed, measured among `busy` ranks of a node.
KernelRates rates_of(std::int64_t busy, double alone) {
  KernelRates rates;
  for (const RatedKernel& kernel : rated_kernels())
    rates.rates[kernel] = {.overhead_s = 1e-6, .flops_per_s = 1e9, .bytes_per_s = 1e9};
  rates.optimizer = KernelRate{.bytes_per_s = 1e9};
  rates.busy = busy;
  rates.alone = alone;
  return rates;
}

// One rank on each of `ranks` chips of a node of eight.
Job job_on(int ranks, const KernelRates& rates) {
  Job job = tiny_job({1, 1, ranks});
  NodeGroup& group = job.cluster.groups[0];
  group.nodes = 1;
  group.chips_per_node = 8;
  group.chip.software.kernels = rates;
  build_topology(job.cluster);
  return job;
}

double computes_s(const Job& job) {
  const Program program = compile(job);
  CostTable costs(program, job.cluster);
  double seconds = 0;
  const Rank rank(0);
  for (const Instruction& instruction : program.program_of(rank).streams[kComputeStream].instructions)
    if (instruction.op() == Op::compute || instruction.op() == Op::optimizer)
      seconds += costs.price(rank, instruction).seconds();
  return seconds;
}

}  // namespace

TEST_CASE("a rank alone takes the share that was measured, one among all its whole time", "[calibration]") {
  const double among_s = computes_s(job_on(1, rates_of(0, 0)));
  CHECK(computes_s(job_on(1, rates_of(8, 0))) == among_s);  // nobody knows what it takes alone
  for (const double alone : {0.1, 0.5, 0.97, 1.0}) {
    INFO(alone);
    CHECK(computes_s(job_on(1, rates_of(8, alone))) == Approx(alone * among_s));
    CHECK(computes_s(job_on(1, rates_of(2, alone))) == Approx(alone * among_s));
    for (const int ranks : {2, 4, 8}) {
      const double expected_s = computes_s(job_on(ranks, rates_of(0, 0)));
      CHECK(computes_s(job_on(ranks, rates_of(8, alone))) ==
            Approx((alone + (1 - alone) * (ranks - 1) / 7) * expected_s));
      CHECK(computes_s(job_on(ranks, rates_of(2, alone))) == expected_s);  // no slower than it was measured
    }
  }
}

TEST_CASE("fewer busy ranks never make a rank slower", "[calibration]") {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> share(0.01, 1);
  for (int i = 0; i < 20; ++i) {
    KernelRates rates = rates_of(std::uniform_int_distribution<std::int64_t>(2, 12)(random), share(random));
    for (auto& [kernel, rate] : rates.rates) {
      if (share(random) < 0.5) rate.alone = share(random);
      MeasuredShape shape;
      shape.seconds = share(random);
      rates.shapes[kernel].push_back(shape);
    }
    std::optional<double> fewer;
    for (const std::int64_t ranks : {1, 2, 3, 5, 8, 12, 20}) {
      const KernelRates here = among(rates, ranks).value_or(rates);
      double seconds = here.optimizer->seconds({0, 1e6, 0});
      for (const auto& [kernel, rate] : here.rates)
        seconds += rate.seconds({1e6, 1e6, 0}) + here.shapes.at(kernel)[0].seconds;
      if (fewer) CHECK(*fewer <= seconds * (1 + 1e-12));
      fewer = seconds;
    }
  }
}

TEST_CASE("the busiest node of a group counts for all of them", "[calibration]") {
  Job job = job_on(4, rates_of(8, 0.5));
  job.cluster.groups[0].nodes = 2;
  job.cluster.groups[0].chips_per_node = 3;
  build_topology(job.cluster);
  const Program program = compile(job);  // three ranks on the first node, one on the second
  const auto busy = as_busy_as(program, job.cluster);
  REQUIRE(busy != nullptr);
  CHECK(busy->groups[0].chip.software.kernels == among(rates_of(8, 0.5), 3));
}
