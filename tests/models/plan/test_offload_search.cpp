// Pipelines that offload: legal, on chips that hold what is left, and only where nodes have memory.
#include <catch2/catch.hpp>

#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/offload_search.hpp"
#include "models/plan/stage_price.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

TEST_CASE("pipelines that offload are legal and fit where nothing else does, if nodes have memory",
          "[plan]") {
  const std::function<bool()> always = [] { return true; };
  int alone = 0, none = 0, fit = 0, over = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Job job = tiny_job({1, 1, 1}, dice.one_of({Family::gpt2, Family::llama}));
    job.transformer.layers = dice.one_of({4, 6});
    job.train.global_batch = dice.one_of({4, 8});
    NodeGroup& group = job.cluster.groups[0];
    group.nodes = dice.one_of({1, 2});
    group.chips_per_node = 2;
    group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
    group.inside = {FabricKind::loopback, 1e9, 0};
    group.chip.memory_bytes.value = dice.one_of({1e5, 1.5e5, 2e5, 3e5});
    build_topology(job.cluster);
    CHECK(offloading_proposals(job, {}, {}, always).empty());
    job.cluster = with_hosts(job.cluster);
    StagePricer pricer(job);
    const std::vector<PlannedPipeline> others = search_pipelines(job, pricer, 8, always).best;
    PlannedPipeline instant;
    CHECK(offloading_proposals(job, {}, {instant}, always).empty());
    const std::vector<Job> jobs = offloading_proposals(job, {}, others, always);
    if (others.empty()) (jobs.empty() ? none : alone) += 1;
    for (const Job& each : jobs) {
      CHECK(each.strategy.offload != Offload{});
      validate(each.transformer, each.train, each.strategy);
      for (const StageMemory& stage :
           memory_by_stage(compile(each), each.cluster, each.train.fragmentation)) {
        CHECK(static_cast<double>(stage.peak) <= 1.15 * static_cast<double>(stage.capacity));
        (stage.peak <= stage.capacity ? fit : over) += 1;
      }
    }
  }
  CAPTURE(alone, none, fit, over);
  CHECK(alone > 3);
  CHECK(fit > 10 * over);
}
