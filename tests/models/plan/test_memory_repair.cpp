// Jobs that lack a little memory: with a little more recomputed they fit, and nothing else of them changes.
#include <algorithm>
#include <catch2/catch.hpp>

#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/memory_repair.hpp"
#include "models/plan/planned_recomputes.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

std::int64_t peak_of(const Job& job) {
  std::int64_t most = 0;
  for (const StageMemory& stage : memory_by_stage(compile(job), job.cluster, job.train.fragmentation))
    most = std::max(most, stage.peak);
  return most;
}

Job with_memory(Job job, double bytes) {
  for (NodeGroup& group : job.cluster.groups) group.chip.memory_bytes.value = bytes;
  build_topology(job.cluster);
  return job;
}

// Two to four stages of two to four layers, in some of which a layer recomputes already.
Job random_pipeline(unsigned seed) {
  Dice dice(seed);
  const std::int64_t stages = dice.one_of({2, 4});
  Job job = tiny_job({1, 1, 1}, Family::llama);
  job.transformer.layers = stages * dice.one_of({2, 3, 4});
  job.cluster = tiny_cluster(8);
  job.train.global_batch = 16;
  job.strategy = expand(job.transformer, job.train, 1, stages, 1);
  if (dice.once_in(3))
    use_schedule(job.transformer, job.strategy, Schedule::zb_v, standard_chunks(Schedule::zb_v));
  for (Stage& stage : job.strategy.templates[0].stages)
    if (dice.once_in(3)) {
      stage.recompute = dice.one_of({Recompute::selective, Recompute::full});
      stage.recompute_layers = 1;
    }
  return job;
}

// All of a strategy but what is recomputed.
Strategy but_recompute(Strategy strategy) {
  for (PipelineTemplate& pipeline : strategy.templates)
    for (Stage& stage : pipeline.stages) {
      stage.recompute.reset();
      stage.recompute_layers.reset();
    }
  return strategy;
}

}  // namespace

TEST_CASE("a job that lacks a little memory fits with more recomputed, and changes in nothing else",
          "[plan]") {
  int repaired = 0, all = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Job job = random_pipeline(seed);
    const std::vector<Recompute> recomputes = planned_recomputes(job.transformer);
    const auto peak = static_cast<double>(peak_of(job));
    CHECK_FALSE(with_more_recomputed(with_memory(job, peak), recomputes));        // fits
    CHECK_FALSE(with_more_recomputed(with_memory(job, 0.5 * peak), recomputes));  // lacks much
    const Job scarce = with_memory(job, 0.985 * peak);
    const std::optional<Job> fits = with_more_recomputed(scarce, recomputes);
    ++all;
    if (!fits) continue;
    ++repaired;
    CAPTURE(print(fits->strategy));
    CHECK(static_cast<double>(peak_of(*fits)) <= 0.985 * peak);
    CHECK(but_recompute(fits->strategy) == but_recompute(scarce.strategy));
    CHECK_NOTHROW(validate(fits->transformer, fits->train, fits->strategy));
  }
  INFO(repaired << " of " << all);
  CHECK(2 * repaired > all);
}
