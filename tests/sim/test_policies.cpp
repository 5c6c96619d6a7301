// Policies judged by simulations: `optimal` is never slower than any, no proposal is faster than its closed-form bound,
// and what the published systems claim of themselves comes out where their conditions hold.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "models/base/refusal.hpp"
#include "models/plan/ablation.hpp"
#include "models/plan/baselines.hpp"
#include "models/plan/findings_text.hpp"
#include "models/plan/policies.hpp"
#include "models/plan/policy.hpp"
#include "models/plan/policy_holmes.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Job shipped(const std::string& name, bool keeps_strategy = false) {
  const std::string path = MOTLEY_SOURCE_DIR + ("/" + name);
  Job job = read_scenario(read_yaml(path), path, ScenarioUse::plan).job;
  if (!keeps_strategy) job.strategy = {};
  job.fidelity.fold = true;
  return job;
}

void check_side_by_side(const Job& job, const PlanLimits& limits) {
  CountingJudge counting;
  const Judge judge = std::ref(counting);
  std::vector<PolicyPlan> plans;
  try {
    plans = plan_by_all(job, judge, limits);
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "no-plan");
    return;
  }
  REQUIRE(plans.size() == every<PlanPolicy>().size() - 1);
  REQUIRE(plans[0].policy == PlanPolicy::optimal);
  for (const PolicyPlan& each : plans) {
    CAPTURE(name_of(each.policy));
    CHECK(each.plan.has_value() == each.refused.empty());
    if (!each.plan) continue;
    CHECK(plans[0].plan->simulated_s <= each.plan->simulated_s);
    CHECK(each.plan->judged <= limits.evaluations);
    CHECK(judge({each.plan->job}).at(0).step_s == each.plan->simulated_s);
    CHECK(each.plan->bound_s <= each.plan->simulated_s * (1 + 1e-9));
  }
}

// Two types of one node each, of which the second has little memory.
Job two_memories(double large_bytes, double small_bytes) {
  Job job = shipped("scenarios/plan-small-memory.yaml");
  job.cluster.groups[0].chip.memory_bytes.value = large_bytes;
  job.cluster.groups[1].chip.memory_bytes.value = small_bytes;
  return job;
}

struct Ratio {
  std::optional<double> ratio;
  std::vector<Baseline> baselines;
  Plan plan;
};

Ratio ratio_of(const Job& job, PlanPolicy policy) {
  CountingJudge counting;
  const Judge judge = std::ref(counting);
  Ratio result;
  const PlanLimits limits{.policy = policy};
  result.plan = plan(job, judge, limits);
  result.baselines = plan_baselines(job, judge, limits);
  result.ratio = speedup_ratio(result.plan.simulated_s, result.baselines);
  return result;
}

}  // namespace

TEST_CASE("P-7: no policy's plan is faster than the optimal one, on random clusters", "[plan][slow]") {
  for (unsigned seed = 61; seed <= (kSanitized ? 61 : 64); ++seed) {
    CAPTURE(seed);
    Job job = plannable_job(seed);
    job.strategy = {};
    check_side_by_side(job, {.evaluations = kSanitized ? 20 : 60});
  }
}

TEST_CASE("P-7: no policy's plan is faster than the optimal one, on clusters that ship", "[plan][slow]") {
  for (const char* name : {"scenarios/holmes-hybrid.yaml", "scenarios/mixed-fleet.yaml"}) {
    CAPTURE(name);
    check_side_by_side(shipped(name), {.evaluations = kSanitized ? 10 : 40});
    if (kSanitized) break;
  }
}

TEST_CASE("the optimal plan starts with those of all policies by itself, too", "[plan][slow]") {
  for (unsigned seed = 71; seed <= (kSanitized ? 71 : 72); ++seed) {
    CAPTURE(seed);
    Job job = plannable_job(seed);
    job.strategy = {};
    CountingJudge counting;
    const Judge judge = std::ref(counting);
    const Plan optimal = plan(job, judge, {.evaluations = 2000});
    for (const PlanPolicy policy : kPublishedPolicies) {
      CAPTURE(name_of(policy));
      try {
        CHECK(optimal.simulated_s <= plan(job, judge, {.policy = policy}).simulated_s);
      } catch (const Refusal& refusal) {
        CHECK(refusal.kind() == "no-plan");
      }
    }
  }
}

TEST_CASE("no proposal of a policy takes less than its closed-form bound", "[plan][slow]") {
  double closest = 0;
  for (unsigned seed = 81; seed <= 86; ++seed) {
    Job job = plannable_job(seed);
    job.strategy = {};
    StagePricer pricer(job);
    CountingJudge counting;
    const Measure measure = [&](const std::vector<Job>& jobs) {
      std::vector<std::optional<double>> steps;
      for (const Verdict& verdict : counting(jobs))
        steps.push_back(verdict.stands() ? std::optional(verdict.step_s) : std::nullopt);
      return steps;
    };
    for (const PlanPolicy policy : kPublishedPolicies) {
      Proposals proposals = propose(policy, {job, pricer, measure});
      if (proposals.list.size() > 4) proposals.list.resize(4);
      for (const Proposal& proposal : proposals.list) {
        CAPTURE(seed, name_of(policy), print(proposal.job.strategy));
        const Verdict verdict = counting({proposal.job}).at(0);
        if (!verdict.stands()) continue;
        CHECK(proposal.least_s <= verdict.step_s * (1 + 1e-9));
        closest = std::max(closest, proposal.least_s / verdict.step_s);
      }
    }
  }
  CHECK(closest > 0.5);  // a bound far below every step would hold, too
}

TEST_CASE("O-2: where islands simulate at 197 to 160, Holmes's policy divides layers as Holmes ships them",
          "[plan][slow]") {
  // The rate of RoCE is turned until the islands' speeds have that ratio.
  for (const auto& [layers, by_island] :
       {std::pair{30, std::pair{16, 14}}, std::pair{48, std::pair{26, 22}}}) {
    Job job = shipped("scenarios/holmes-hybrid.yaml");
    job.transformer.layers = layers;
    CountingJudge counting;
    const Judge judge = std::ref(counting);
    int divided = 0;
    double least = 1e7, most = 25e9;
    for (int turn = 0; turn < 12; ++turn) {
      const double rate = std::sqrt(least * most);
      job.cluster.groups[1].nics[0].bandwidth = rate;
      build_topology(job.cluster);
      std::vector<double> steps;
      StagePricer pricer(job);
      const Measure measure = [&](const std::vector<Job>& jobs) {
        std::vector<std::optional<double>> measured;
        for (const Verdict& verdict : judge(jobs)) {
          measured.emplace_back(verdict.step_s);
          steps.push_back(verdict.step_s);
        }
        return measured;
      };
      const Proposals proposals = propose(PlanPolicy::holmes, {job, pricer, measure});
      REQUIRE(steps.size() == 2);
      REQUIRE_FALSE(proposals.list.empty());
      const double ratio = steps[1] / steps[0];  // both islands have as many chips
      (ratio > 197.0 / 160.0 ? least : most) = rate;
      if (std::abs(ratio / (197.0 / 160.0) - 1) > 0.02) continue;
      for (const Proposal& proposal : proposals.list) {
        std::int64_t of_ib = 0, stages = 0;
        for (const Stage& stage : proposal.job.strategy.templates.at(0).stages) {
          ++stages;
          if (stage.on.at(0) == "ib") of_ib += stage.last_layer - stage.first_layer;
        }
        if (stages > 4) continue;  // every further stage rounds down once more
        CHECK(of_ib == by_island.first);
        CHECK(layers - of_ib == by_island.second);
        ++divided;
      }
    }
    CHECK(divided > 0);
  }
}

TEST_CASE("H-3: non-uniform layers are never slower than uniform ones, and equal for equal types",
          "[plan][slow]") {
  int faster = 0, compared = 0;
  for (unsigned seed = 91; seed <= 110; ++seed) {
    CAPTURE(seed);
    Job job = plannable_job(seed);
    if (job.cluster.groups.size() < 2) continue;
    job.strategy = {};
    const bool equal = seed % 2 == 0;
    for (NodeGroup& group : job.cluster.groups) {
      if (equal) {
        const std::string name = group.name;
        group = job.cluster.groups[0];
        group.name = name;
      }
      group.chip.memory_bytes.value = 4e9;  // all that is needed
      if (!equal)                           // layers decide, not transfers
        for (Nic& nic : group.nics) nic.bandwidth *= 100;
    }
    for (GroupLink& link : job.cluster.links)
      if (equal) link.over = job.cluster.groups[0].nics[0].kind;
    if (equal) job.cluster.networks.clear();
    build_topology(job.cluster);
    CountingJudge counting;
    try {
      const Plan planned = plan(job, std::ref(counting), {.policy = PlanPolicy::hethub});
      REQUIRE(planned.variants.size() == 2);
      const double uniform_s = planned.variants[0].step_s, other_s = planned.variants[1].step_s;
      CHECK(other_s == planned.simulated_s);
      if (uniform_s <= 0) continue;
      ++compared;
      CHECK(other_s <= uniform_s);
      if (equal) CHECK(other_s == uniform_s);
      faster += other_s < uniform_s;
    } catch (const Refusal& refusal) {
      CHECK(refusal.kind() == "no-plan");
    }
  }
  CHECK(compared > 2);
  CHECK(faster > 0);
}

TEST_CASE("T-3, T-4: a mix beats the sum of its types where it saves recompute, and only there",
          "[plan][slow]") {
  const Ratio mix = ratio_of(shipped("scenarios/plan-small-memory.yaml"), PlanPolicy::heteroauto);
  REQUIRE(mix.ratio);
  CHECK(*mix.ratio > 1);
  CHECK_FALSE(mix.baselines[0].recomputes);
  CHECK(mix.baselines[1].recomputes);
  for (const Stage& stage : mix.plan.job.strategy.templates.at(0).stages)
    CHECK_FALSE(stage.recompute.value_or(Recompute::none).layer);  // some attention at most
  const Ratio control = ratio_of(two_memories(200e9, 200e9), PlanPolicy::heteroauto);
  REQUIRE(control.ratio);
  CHECK(*control.ratio <= 1);
  CHECK_FALSE(control.baselines[1].recomputes);
}

TEST_CASE("T-5: with the small memory first, HeteroAuto's pipeline is slower or does not fit", "[plan]") {
  Job job = shipped("scenarios/plan-small-memory.yaml");
  CountingJudge counting;
  const Judge judge = std::ref(counting);
  const Plan planned = plan(job, judge, {.policy = PlanPolicy::heteroauto});
  const std::vector<Stage>& stages = planned.job.strategy.templates.at(0).stages;
  CHECK(stages.front().on == std::vector<std::string>{"large"});
  CHECK(stages.back().on == std::vector<std::string>{"small"});
  Job turned = planned.job;
  std::vector<Stage>& order = turned.strategy.templates.at(0).stages;
  std::reverse(order.begin(), order.end());
  std::int64_t next = 0;
  for (Stage& stage : order) {
    const std::int64_t count = stage.last_layer - stage.first_layer;
    stage.first_layer = next;
    stage.last_layer = next += count;
  }
  const Verdict verdict = judge({turned}).at(0);
  CHECK((!verdict.stands() || verdict.step_s > planned.simulated_s));
}

TEST_CASE("a type that cannot hold the model alone has no baseline, and the mix no ratio", "[plan]") {
  Job job = two_memories(200e9, 20e9);
  const Ratio mix = ratio_of(job, PlanPolicy::heteroauto);
  CHECK_FALSE(mix.baselines[1].step_s);
  CHECK_FALSE(mix.ratio);
  const std::string text = baselines_text(mix.plan.simulated_s, mix.baselines);
  CHECK(text.find("`small` cannot hold the model alone") != std::string::npos);
}

TEST_CASE("a plan without what is ablated has it nowhere, and the same plan comes out twice", "[plan]") {
  Job job = plannable_job(101);
  job.strategy = {};
  CountingJudge counting;
  const Judge judge = std::ref(counting);
  const std::vector<Ablation> ablations = {Ablation::uniform_layers, Ablation::uniform_recompute,
                                           Ablation::no_overlap};
  const PlanLimits limits{.evaluations = 40, .ablate = ablations};
  const Plan first = plan(job, judge, limits), second = plan(job, judge, limits);
  CHECK(print(first.job.strategy) == print(second.job.strategy));
  CHECK(first.judged == second.judged);
  CHECK(ablated(first.job, ablations)->strategy == first.job.strategy);
}

TEST_CASE("HETHUB's policy is at least as fast on its pairs of types as plans by hand", "[plan][slow]") {
  for (const char* pair : {"nvidia-amd", "a-b"}) {
    CAPTURE(pair);
    const std::string name = std::string("tests/validation/claims/hethub-") + pair + ".yaml";
    CountingJudge counting;
    const Judge judge = std::ref(counting);
    const double by_hand_s = judge({shipped(name, true)}).at(0).step_s;
    CHECK(plan(shipped(name), judge, {.policy = PlanPolicy::hethub}).simulated_s <= by_hand_s);
  }
}
