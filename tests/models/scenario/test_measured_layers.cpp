// Measured layers: which costs follow from them, and for which jobs they do not apply.
#include <catch2/catch.hpp>

#include "models/cluster/measured_layers.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/network_cost.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/use_layers.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Layers with seconds that no cost formula of a kernel would give.
MeasuredLayers layers(bool communication) {
  return {
      "assumed", communication, {{2, 2, {3, 5, 7}, {11, 13, 17}, 19}, {2, 6, {7, 9, 11}, {15, 17, 21}, 23}}};
}

Job measured_job(Degrees degrees, bool communication) {
  Job job = tiny_job(degrees, Family::llama);
  job.cluster.groups[0].chip.software.layers = layers(communication);
  return job;
}

struct Sums {
  double compute_s = 0, tensor_parallel_s = 0, optimizer_s = 0;
};
// The seconds of the first micro-batch of stage 0, and of the optimizer step.
Sums sums_of(const Job& job) {
  const Program program = compile(job);
  const RingCost ring = ring_cost(program, job.cluster, program.groups.front());
  Sums sums;
  for (const Instruction& each : program.rank_programs.front().streams[kComputeStream].instructions) {
    if (each.micro_batch > 0) continue;
    if (each.op() != Op::compute && each.op() != Op::optimizer) continue;
    const ComputeTime time =
        compute_time(program, program.rank_programs.front(), each, job.cluster.groups[0].chip, &ring);
    (each.op() == Op::compute ? sums.compute_s : sums.optimizer_s) += time.compute_s + time.recompute_s;
    sums.tensor_parallel_s += time.tensor_parallel_s;
  }
  return sums;
}

std::string refusal_of(const Job& job) {
  try {
    sums_of(job);
  } catch (const Refusal& refusal) {
    return refusal.kind();
  }
  return "";
}

}  // namespace

TEST_CASE("a pass takes what its embedding, layers and head were measured to take") {
  // 4 layers take 3 + 4*5 + 7 forward, 11 + 4*13 + 17 backward, and 6 optimizer steps.
  const Sums sums = sums_of(measured_job({2, 1, 1}, true));
  CHECK(sums.compute_s + sums.tensor_parallel_s == Approx(30 + 80).epsilon(1e-12));
  CHECK(sums.tensor_parallel_s > 0);
  CHECK(sums.optimizer_s == Approx(6 * 19).epsilon(1e-12));
}

TEST_CASE("collectives that were not measured with the layers come on top") {
  Job job = measured_job({2, 1, 1}, false);
  const Sums measured = sums_of(job);
  CHECK(measured.compute_s == Approx(30 + 80).epsilon(1e-12));
  job.cluster.groups[0].chip.software.layers = {};
  CHECK(measured.tensor_parallel_s == Approx(sums_of(job).tensor_parallel_s).epsilon(1e-12));
}

TEST_CASE("a stage takes its own layers, and the first has the embedding") {
  const Sums sums = sums_of(measured_job({2, 2, 1}, true));
  CHECK(sums.compute_s + sums.tensor_parallel_s == Approx(3 + 2 * 5 + 11 + 2 * 13).epsilon(1e-12));
  CHECK(sums.optimizer_s == Approx(3 * 19).epsilon(1e-12));
}

TEST_CASE("what a backward computes again takes its share of the measured forward") {
  Job job = measured_job({2, 1, 1}, false);
  job.strategy.recompute = Recompute::full;
  const double again = sums_of(job).compute_s - (30 + 80);
  CHECK(again > 4 * 5 * 0.8);  // a kernel that only the forward needs is not recomputed
  CHECK(again <= 4 * 5 * (1 + 1e-12));
}

TEST_CASE("a backward in two parts takes what it was measured to take in all") {
  Job job = measured_job({2, 2, 1}, true);
  const double whole = sums_of(job).compute_s;
  use_schedule(job.transformer, job.strategy, Schedule::zb_h1, 1);
  const Sums parts = sums_of(job);
  CHECK(parts.compute_s + parts.tensor_parallel_s ==
        Approx(whole + sums_of(measured_job({2, 2, 1}, true)).tensor_parallel_s).epsilon(1e-9));
}

TEST_CASE("between two micro-batches measured lies the straight line") {
  Chip chip = tiny_chip();
  chip.software.layers = layers(true);
  const LayerTimes times = measured_times(chip, 2, 3);
  CHECK(measured_s(times, LayerPlace::embedding, false) == Approx(4));
  CHECK(measured_s(times, LayerPlace::layer, true) == Approx(14));
  CHECK(measured_s(times, LayerPlace::head, true) == Approx(18));
  CHECK(times.optimizer_s == Approx(20));
  CHECK(measured_times(chip, 2, 6) == chip.software.layers.times[1]);
}

TEST_CASE("what was not measured is refused") {
  Job larger = measured_job({2, 1, 1}, true), smaller = larger;
  larger.strategy.templates[0].micro_batch = 8;
  larger.strategy.templates[0].micro_batches = 2;
  CHECK(refusal_of(larger) == "not-measured");
  smaller.strategy.templates[0].micro_batch = 1;
  smaller.strategy.templates[0].micro_batches = 16;
  CHECK(refusal_of(smaller) == "not-measured");
  CHECK(refusal_of(measured_job({4, 1, 1}, true)) == "not-measured");
  // Collectives beside the layers would count twice if the measured times already include them.
  Job apart = measured_job({2, 1, 1}, true);
  apart.fidelity.tensor_parallel = CollectiveLevel::fluid;
  CHECK(refusal_of(apart) == "not-measured");
  apart.cluster.groups[0].chip.software.layers = layers(false);
  CHECK(refusal_of(apart).empty());
}

TEST_CASE("measured layers are printed with their chip, and read back equal") {
  Cluster cluster = tiny_cluster(2);
  cluster.groups[0].chip.software.layers = layers(true);
  CHECK(parse_cluster(print(cluster)) == cluster);
}

TEST_CASE("the files of measured layers are those of the jobs that they name") {
  Job job;
  job.train.sequence = 2048;
  job.train.precision = Format::tf32;
  job.cluster = load_cluster("sailor-mit");
  job.transformer = load_transformer("gpt3-175b");
  job.transformer.vocabulary = 50272;
  job.transformer.hidden = 1024;
  job.transformer.ffn = 4096;
  job.transformer.heads = 16;
  CHECK(use_layers("opt-350m", job.transformer, job.train, job.cluster));
  for (const NodeGroup& group : job.cluster.groups) CHECK(group.chip.software.layers.times.size() > 10);
  // Two sequences on eight RTX 3090 over PCIe take longer than on one, because the times include the collectives.
  const Chip& chip = job.cluster.groups[0].chip;
  CHECK(chip.name == "rtx-3090");
  CHECK(measured_times(chip, 8, 2).forward_s[1] > 4 * measured_times(chip, 1, 2).forward_s[1]);
  CHECK_FALSE(use_layers("opt-30b", job.transformer, job.train, job.cluster));
  job.cluster = load_cluster("dgx-h100-pod");
  CHECK_FALSE(use_layers("opt-350m", job.transformer, job.train, job.cluster));
  CHECK(job.cluster.groups[0].chip.software.layers.times.empty());
}
