// Plans whose pipelines are unlike: fast chips have more micro-batches than slow ones.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "models/plan/planner.hpp"
#include "models/plan/template_search.hpp"
#include "models/scenario/scenario.hpp"
#include "models/strategy/strategy.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Two types of chips, one twice as fast, on a fast network.
Job two_types(int fast_nodes, int slow_nodes, int batch) {
  const std::string text = fmt::format(
      "model: llama-2-7b\n"
      "cluster:\n"
      "  groups:\n"
      "    - {{name: h, nodes: {}, chip: h100-80gb-sxm, chips_per_node: 8, inside: {{fabric: nvswitch, "
      "bandwidth: 450 GB/s, latency: 2 us}}, nics: [{{kind: infiniband, count: 8, bandwidth: 400 Gb/s, "
      "latency: 2 us}}]}}\n"
      "    - {{name: a, nodes: {}, chip: a100-80gb-sxm, chips_per_node: 8, inside: {{fabric: nvswitch, "
      "bandwidth: 300 GB/s, latency: 2 us}}, nics: [{{kind: infiniband, count: 8, bandwidth: 200 Gb/s, "
      "latency: 2 us}}]}}\n"
      "  links: [{{between: [h, a], over: infiniband}}]\n"
      "train: {{global_batch: {}, sequence: 4096, precision: bf16}}\n"
      "plan: {{}}\n",
      fast_nodes, slow_nodes, batch);
  return read_scenario(parse_yaml(text, "types.yaml"), "types.yaml", ScenarioUse::plan).job;
}

}  // namespace

TEST_CASE("mixes of unlike pipelines are legal, hold the batch, and most take as long as estimated",
          "[plan][slow]") {
  const Judge judge = simulating_judge(false);
  constexpr unsigned kJobs = kSanitized ? 4 : 12;
  int near = 0, stood = 0, all = 0;
  for (unsigned seed = 1; seed <= kJobs; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const int batch = dice.one_of({32, 48, 96}), slow_nodes = dice.one_of({1, 2, 3});
    Job job = two_types(dice.one_of({1, 2, 3}), slow_nodes, batch);
    job.fidelity.fold = true;
    StagePricer pricer(job);
    const std::vector<TemplateProposal> proposals =
        template_proposals(job, pricer, {}, 4, [] { return true; });
    CHECK(!proposals.empty());
    for (const TemplateProposal& proposal : proposals) {
      CAPTURE(print(proposal.job.strategy), proposal.estimate_s);
      std::int64_t sequences = 0;
      for (const PipelineTemplate& pipeline : proposal.job.strategy.templates)
        sequences += pipeline.replicas * pipeline.micro_batches *
                     (pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch);
      CHECK(sequences == job.train.global_batch);
      const Verdict verdict = judge({proposal.job}).front();
      ++all;
      if (!verdict.stands()) continue;  // by closed forms it just fitted
      ++stood;
      const double ratio = verdict.step_s / proposal.estimate_s;
      CHECK(ratio > 0.9);
      near += ratio < 1.5 ? 1 : 0;
    }
  }
  CHECK(stood > 0.8 * all);
  CHECK(near > 0.8 * stood);
}

TEST_CASE("the plan for unlike chips has unlike pipelines where these are fastest", "[plan][slow]") {
  PlanLimits limits;
  limits.evaluations = kSanitized ? 24 : 60;
  Job job = two_types(4, 7, 256);
  job.fidelity.fold = true;
  const Plan best = plan(job, simulating_judge(false), limits);
  CHECK(best.job.strategy.templates.size() > 1);
}
