// Pipelines that offload: legal, on chips that hold what is left, and only where nodes have memory.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/offload_search.hpp"
#include "models/plan/plan_text.hpp"
#include "models/plan/stage_price.hpp"
#include "models/transformer/transformer.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

TEST_CASE("a plan says what its stages offload and recompute, and of which pipelines its second bound is",
          "[plan]") {
  PlanReport report;
  Job& job = report.plan.job;
  job = tiny_job({1, 1, 1}, Family::gpt2);
  report.plan.simulated_s = report.plan.bound_s = 1;
  report.plan.form_bound_s = 1;
  const auto says = [&](const std::string& part) { return to_text(report).find(part) != std::string::npos; };
  CHECK(!says("offload"));
  CHECK(says("no pipeline of equal replicas under 1f1b that reduces gradients after it takes less"));
  job.cluster = with_hosts(job.cluster);
  CHECK(
      says("no pipeline of equal replicas under 1f1b that offloads nothing and reduces gradients after it "
           "takes less"));
  CHECK(!says(", offload"));
  job.strategy.offload = {1, 0.5};
  CHECK(says(", offload optimizer 100.0 %, activations 50.0 %\n"));
  job.strategy.templates[0].stages[0].offload = Offload{0, 1};
  CHECK(says(", offload activations 100.0 %\n"));
  job.strategy.templates[0].stages.push_back(job.strategy.templates[0].stages[0]);
  job.strategy.templates[0].stages[1].offload = Offload{};
  CHECK(says(", some stages offload\n"));
  CHECK(!says(", first 2"));
  job.strategy.recompute = Recompute::full;
  job.strategy.templates[0].stages[0].recompute_layers = 2;
  CHECK(says("full, first 2\n"));
}

TEST_CASE("pipelines that offload are legal and fit where nothing else does, if nodes have memory",
          "[plan][slow]") {
  const std::function<bool()> always = [] { return true; };
  int alone = 0, none = 0, fit = 0, over = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 8U : 20U); ++seed) {
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
  CHECK(alone > (kSanitized ? 0 : 1));
  CHECK(fit > 10 * over);
}

TEST_CASE("pipelines that offload are proposed where they are faster although the nodes' processors step all",
          "[plan]") {
  const std::function<bool()> always = [] { return true; };
  Job job = tiny_job({1, 1, 1}, Family::gpt2);
  job.cluster = with_hosts(job.cluster);
  job.cluster.groups[0].host->memory_bandwidth = 1;  // byte/s
  build_topology(job.cluster);
  const double hosts_s = 28.0 * static_cast<double>(parameter_count(job.transformer));
  StagePricer pricer(job, {1, 0});
  PlannedPipeline other;
  other.estimate_s = std::numeric_limits<double>::infinity();
  for (const PlannedPipeline& each : search_pipelines(job, pricer, 12, always).best)
    other.estimate_s = std::min(other.estimate_s, each.estimate_s);
  other.estimate_s += 0.99 * hosts_s;
  CHECK(offloading_proposals(job, {}, {other}, always).empty());
  other.estimate_s += 0.02 * hosts_s;
  CHECK_FALSE(offloading_proposals(job, {}, {other}, always).empty());
}
