// Plans in which some stages are replicated more often than others.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "models/plan/moves.hpp"
#include "models/plan/planner.hpp"
#include "models/plan/replica_search.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// One fast chip and two slow ones on a slow network, and a model of two large layers: a pipeline of equal replicas has
// two stages, so that a chip is idle, and whole copies of the model would send too many gradients.
Job three_chips() {
  const std::string nodes =
      "chips_per_node: 1, inside: {fabric: pcie, bandwidth: 32 GB/s, latency: 2 us}, nics: [{kind: "
      "infiniband, count: 1, bandwidth: 25 Gb/s, latency: 2 us}]}\n";
  const std::string text =
      "model: {name: two-layers, family: llama, vocabulary: 50304, hidden: 12288, layers: 2, heads: 96, "
      "ffn: 32768, max_positions: 2048}\n"
      "cluster:\n"
      "  groups:\n"
      "    - {name: fast, nodes: 1, chip: h100-80gb-sxm, " +
      nodes + "    - {name: slow, nodes: 2, chip: a100-80gb-sxm, " + nodes +
      "  links: [{between: [fast, slow], over: infiniband}]\n"
      "train: {global_batch: 128, sequence: 2048, precision: bf16}\n"
      "plan: {}\n";
  Job job = read_scenario(parse_yaml(text, "chips.yaml"), "chips.yaml", ScenarioUse::plan).job;
  job.fidelity.fold = true;
  return job;
}

Plan plan_of(const Job& job, bool has_unlike_replicas, std::size_t evaluations) {
  PlanLimits limits;
  limits.evaluations = evaluations;
  limits.form.has_unlike_replicas = has_unlike_replicas;
  return plan(job, simulating_judge(false), limits);
}

}  // namespace

TEST_CASE("a chip that equal replicas leave idle makes one stage's replicas two", "[plan]") {
  const Job job = three_chips();
  const Plan alike = plan_of(job, false, 400), unlike = plan_of(job, true, 400);
  const PipelineTemplate& pipeline = unlike.job.strategy.templates.at(0);
  CAPTURE(print(unlike.job.strategy), print(alike.job.strategy));
  CHECK(pipeline.has_unlike_replicas());
  CHECK(unlike.job.strategy.rank_count() == 3);
  CHECK_FALSE(alike.job.strategy.templates.at(0).has_unlike_replicas());
  CHECK(unlike.simulated_s < 0.8 * alike.simulated_s);
}

TEST_CASE("no plan is slower because some stages may be replicated more often", "[plan][slow]") {
  for (unsigned seed = 1; seed <= (kSanitized ? 1 : 4); ++seed) {
    const Job job = plannable_job(seed);
    CAPTURE(seed, written_out(job));
    CHECK(plan_of(job, true, 60).simulated_s <= plan_of(job, false, 60).simulated_s);
  }
}

TEST_CASE("pipelines that are replicated unlike take about as long as estimated", "[plan]") {
  const Judge judge = simulating_judge(false);
  const Job job = three_chips();
  StagePricer pricer(job);
  const PipelineSearch search = search_pipelines(job, pricer, 12, [] { return true; });
  const std::vector<Job> proposals = replica_proposals(job, pricer, search.best, 8, [] { return true; });
  CHECK(proposals.size() > 2);
  int stood = 0;
  for (const Job& each : proposals) {
    CAPTURE(print(each.strategy));
    validate(each.transformer, each.train, each.strategy);
    CHECK(each.strategy.templates[0].has_unlike_replicas());
    const Verdict verdict = judge({each}).front();
    if (!verdict.stands()) continue;
    ++stood;
    const double ratio = verdict.step_s / replicated_step_s(each, pricer).value();
    CHECK(ratio > 0.8);
    CHECK(ratio < 1.5);
  }
  CHECK(stood > 0);
}
