// Plans judged by simulations: no strategy passes the work bound, a plan is at least as fast as what it was chosen
// from, and the same job gives the same plan.
#include <catch2/catch.hpp>
#include <set>

#include "models/base/refusal.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/plan/baselines.hpp"
#include "models/plan/moves.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/plan_file.hpp"
#include "models/plan/planner.hpp"
#include "models/plan/work_bound.hpp"
#include "models/report/report.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

void check_work_bound(unsigned first, unsigned last) {
  double closest = 0;
  for (unsigned seed = first; seed < last; ++seed) {
    Job job = any_job(seed);
    job.fidelity.fold = true;
    StagePricer pricer(job);
    const double bound_s = work_bound_s(job, pricer);
    const double step_s = simulated_step_s(job, compile(job));
    if (!(bound_s <= step_s * (1 + 1e-9))) UNSCOPED_INFO(written_out(job));
    CAPTURE(seed, bound_s, step_s);
    CHECK(bound_s > 0);
    CHECK(bound_s <= step_s * (1 + 1e-9));
    closest = std::max(closest, bound_s / step_s);
  }
  CHECK(closest > 0.2);  // a bound far below every step would hold, too
}

}  // namespace

TEST_CASE("no strategy's step is shorter than the work bound", "[plan][slow]") { check_work_bound(1, 60); }
TEST_CASE("no strategy of ten thousand takes less than the work bound", "[.ten-thousand]") {
  check_work_bound(1000, 11000);
}

namespace {

// A strategy by degrees, under any schedule, on chips and with software that ship. Nothing: the degrees or the schedule
// are not legal.
std::optional<Job> job_of_shipped_parts(unsigned seed) {
  Dice dice(seed);
  const std::string cluster = dice.one_of<std::string>({"dgx-a100-4", "mi300x-nodes", "rtx-4090-8"});
  const std::string software = dice.one_of<std::string>(
      {"none", "usual", "megatron-2021", "megatron-2023", "internevo-2024", "torchtitan-2025"});
  const std::string text = "model: tiny-" + dice.one_of<std::string>({"gpt2", "llama"}) +
                           "\ncluster: " + cluster + "\nsoftware: " + software +
                           "\ntrain: {global_batch: 64, sequence: 16, precision: bf16}\nplan: {}\n";
  Job job = read_scenario(parse_yaml(text, "text"), "text", ScenarioUse::plan).job;
  Transformer& model = job.transformer;
  model.layers = 8;
  model.hidden = dice.one_of({128, 1024, 4096});
  model.heads = model.kv_heads = 8;
  model.head_dim = model.hidden / model.heads;
  model.ffn = 4 * model.hidden;
  job.train.sequence = model.max_positions = dice.one_of({128, 2048, 8192});
  job.train.micro_batch = dice.one_of({1, 8, 32, 64});
  const Schedule schedule =
      dice.one_of({Schedule::one_f_one_b, Schedule::one_f_one_b, Schedule::zb_h1, Schedule::zb_v});
  const int micro_batches = dice.one_of({1, 2, 4, 8}), dp = dice.one_of({1, 2, 4});
  const int pp = dice.one_of({1, 2, 4}), tp = dice.one_of({1, 2, 4});
  try {
    job.strategy = expand(model, job.train, tp, pp, dp, micro_batches);
    use_schedule(model, job.strategy, schedule, standard_chunks(schedule));
    job.strategy.zero = dice.one_of({0, 1});
    job.strategy.sequence_parallel = job.strategy.tp() > 1;
    validate(model, job.train, job.strategy);
    compile(job);
  } catch (const Refusal&) {
    return std::nullopt;
  }
  job.fidelity.fold = true;
  return job;
}

}  // namespace

TEST_CASE("no strategy on chips and software that ship takes less than the bounds", "[plan][slow]") {
  int jobs = 0, under_1f1b = 0;
  double closest = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 40 : 160); ++seed) {
    const std::optional<Job> job = job_of_shipped_parts(seed);
    if (!job) continue;
    StagePricer pricer(*job);
    const Program program = compile(*job);
    const Report report = make_report(*job, program, simulate_in_child(*job, program));
    const double step_s = report.iteration_s, ranks = static_cast<double>(program.ranks.size());
    CAPTURE(seed, written_out(*job));
    CHECK(work_bound_s(*job, pricer) <= step_s * (1 + 1e-9));
    // Waiting hides much from a bound of the step; of the kernels alone it is near.
    const double slowness = usual_slowness(job->cluster.groups[0].chip, ranks);
    const double least_s =
        static_cast<double>(job->train.global_batch) * pricer.least_work(0).seconds() * slowness;
    CHECK(least_s <= ranks * report.all_chips.compute_s * (1 + 1e-9));
    closest = std::max(closest, least_s / ranks / report.all_chips.compute_s);
    if (step_s < pricer.few_ranks_step_s()) CHECK(pricer.slowness(0) <= slowness * (1 + 1e-9));
    ++jobs;
    if (job->strategy.schedule != Schedule::one_f_one_b) continue;
    PipelineForm form;
    form.gathers_last = true;  // no parameters overlap here
    CHECK(search_pipelines(
              *job, pricer, 8, [] { return true; }, form)
              .bound_s <= step_s * (1 + 1e-9));
    ++under_1f1b;
  }
  CHECK(closest > 0.8);
  CHECK(jobs > (kSanitized ? 10 : 40));
  CHECK(under_1f1b > (kSanitized ? 4 : 20));
}

TEST_CASE("a plan is at least as fast as the job's own strategy, and as every change of one thing",
          "[plan][slow]") {
  for (unsigned seed = 1; seed <= (kSanitized ? 2 : 4); ++seed) {
    CAPTURE(seed);
    const Job job = plannable_job(seed);
    CountingJudge counting;
    const Judge judge = std::ref(counting);
    const Plan planned = plan(job, judge, {.evaluations = 2000});
    CHECK(planned.judged == counting.judged);
    CHECK(planned.end == PlanEnd::no_move_helps);
    CHECK(planned.bound_s <= planned.simulated_s);
    REQUIRE(planned.own_s);
    CHECK(planned.simulated_s <= *planned.own_s);
    CHECK(judge({planned.job}).at(0).step_s == planned.simulated_s);
    std::vector<Job> changed;
    for (const Move& move : moves(planned.job))
      if (move.kind != MoveKind::combination)
        if (std::optional<Job> after = apply(move, planned.job)) changed.push_back(std::move(*after));
    for (const Verdict& verdict : judge(changed))
      if (verdict.stands()) CHECK(verdict.step_s >= planned.simulated_s);
  }
}

namespace {

// A model with experts, or of long sequences, on four nodes of eight A100.
Job job_on_32(const std::string& model, int batch, int sequence) {
  const std::string text = "model: " + model +
                           "\ncluster: dgx-a100-4\ntrain: {global_batch: " + std::to_string(batch) +
                           ", sequence: " + std::to_string(sequence) + ", precision: bf16}\nplan: {}\n";
  return read_scenario(parse_yaml(text, "text"), "text", ScenarioUse::plan).job;
}

}  // namespace

TEST_CASE("estimates of pipelines that divide experts or sequences are near their simulations",
          "[plan][slow]") {
  constexpr std::size_t kBest = kSanitized ? 10 : 24;
  std::size_t divide_experts = 0, cut_sequences = 0;
  for (Job job : {job_on_32("mixtral-8x7b", 64, 4096), job_on_32("llama-2-7b", 16, 32768)}) {
    job.fidelity.fold = true;
    StagePricer pricer(job);
    CountingJudge judge;
    for (const PlannedPipeline& pipeline : search_pipelines(job, pricer, kBest, [] { return true; }).best) {
      const Job planned = with_pipeline(job, pipeline);
      CAPTURE(print(planned.strategy), pipeline.estimate_s);
      const Verdict verdict = judge({planned}).at(0);
      if (!verdict.stands()) {  // the closed form of memory is linear, and a little too low for some
        CHECK(verdict.refused.find("too much") != std::string::npos);
        continue;
      }
      CHECK(pipeline.estimate_s == Approx(verdict.step_s).epsilon(0.25));
      divide_experts += pipeline.expert_parallel > 1 ? 1 : 0;
      cut_sequences += pipeline.context_parallel > 1 ? 1 : 0;
    }
  }
  CHECK(divide_experts > kBest / 6);
  CHECK(cut_sequences > kBest / 6);
}

namespace {

struct FormBounds {
  std::size_t judged = 0, with_gradients = 0;
  double closest = 0;  // to the step of a pipeline
};

// The bounds of what is searched, with and without what a step ends with, against simulations of what is found.
FormBounds check_form_bounds(unsigned first, unsigned last) {
  FormBounds sum;
  for (unsigned seed = first; seed < last; ++seed) {
    Job job = plannable_job(seed);
    job.strategy = {};
    StagePricer pricer(job);
    for (const bool gathers_last : {false, true}) {
      PipelineForm form;
      form.gathers_last = gathers_last;
      const PipelineSearch search = search_pipelines(
          job, pricer, 6, [] { return true; }, form);
      form.reduces_last = form.gathers_last = false;
      const double passes_s = search_pipelines(
                                  job, pricer, 6, [] { return true; }, form)
                                  .bound_s;
      CHECK(passes_s <= search.bound_s * (1 + 1e-9));
      for (const PlannedPipeline& pipeline : search.best) {
        if (pipeline.schedule != Schedule::one_f_one_b) continue;
        Job planned = with_pipeline(job, pipeline);
        planned.strategy.overlap_parameters = planned.strategy.overlap_parameters && !gathers_last;
        CAPTURE(seed, written_out(planned), gathers_last, search.bound_s);
        CountingJudge judge;
        const Verdict verdict = judge({planned}).at(0);
        if (!verdict.stands()) continue;
        CHECK(search.bound_s <= verdict.step_s * (1 + 1e-9));
        sum.closest = std::max(sum.closest, search.bound_s / verdict.step_s);
        sum.with_gradients += search.bound_s > 1.001 * passes_s ? 1 : 0;
        ++sum.judged;
      }
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("no pipeline of a form is simulated in less than its bound, whatever its step ends with",
          "[plan][slow]") {
  const FormBounds sum = check_form_bounds(1, kSanitized ? 9 : 31);
  CHECK(sum.judged > (kSanitized ? 10 : 60));
  CHECK(sum.with_gradients > (kSanitized ? 2 : 20));
  CHECK(sum.closest > (kSanitized ? 0.5 : 0.8));
}
TEST_CASE("no pipeline of many forms is simulated in less than its bound", "[.ten-thousand]") {
  CHECK(check_form_bounds(1000, 1400).judged > 800);
}

TEST_CASE("uniform plans are uniform, and no faster than the best of those that know the chips",
          "[plan][slow]") {
  for (unsigned seed = 11; seed <= (kSanitized ? 13 : 16); ++seed) {
    CAPTURE(seed);
    Job job = plannable_job(seed);
    job.strategy = {};
    CountingJudge counting;
    const Judge judge = std::ref(counting);
    Plan uniform;
    try {
      uniform = plan(job, judge, {.policy = PlanPolicy::megatron});
    } catch (const Refusal& refusal) {  // such degrees need not divide the chips
      CHECK(refusal.kind() == "no-plan");
      continue;
    }
    CHECK(is_laid_out_by_degrees(uniform.job.strategy));
    CHECK(uniform.job.strategy.rank_count() == job.cluster.chip_count());
    job.strategy = uniform.job.strategy;
    job.cluster.transport = uniform.job.cluster.transport;
    const Plan optimal = plan(job, judge, {.evaluations = 100});
    CHECK(optimal.own_s == uniform.simulated_s);
    CHECK(optimal.simulated_s <= uniform.simulated_s);
    CHECK(optimal.bound_s == uniform.bound_s);
  }
}

TEST_CASE("a plan depends on nothing but the job and the number of evaluations", "[plan][slow]") {
  const Job job = plannable_job(5);
  CountingJudge counting;
  const Judge judge = std::ref(counting);
  double best_s = 0;
  for (const std::size_t evaluations : {1, 9, 40}) {
    CAPTURE(evaluations);
    const PlanLimits limits{.evaluations = evaluations};
    const Plan first = plan(job, judge, limits), second = plan(job, judge, limits);
    CHECK(first.judged <= evaluations);
    CHECK(print(first.job.strategy) == print(second.job.strategy));
    CHECK(first.simulated_s == second.simulated_s);
    if (best_s > 0) CHECK(first.simulated_s <= best_s);  // more evaluations never give a slower plan
    best_s = first.simulated_s;
  }
}

namespace {

// The plan that comes out is the same whether bounds are asked for or not. Returns the share of jobs that were judged
// by them alone.
double check_same_plan(const Job& job, const Judge& judge, const JudgeBelow& below, std::size_t evaluations) {
  PlanLimits limits{.evaluations = evaluations};
  const Plan simulated = plan(job, judge, limits);
  limits.judge_below = below;
  const Plan bounded = plan(job, judge, limits);
  CHECK(print(bounded.job.strategy) == print(simulated.job.strategy));
  CHECK(bounded.job.cluster.transport == simulated.job.cluster.transport);
  CHECK(bounded.simulated_s == simulated.simulated_s);
  CHECK(bounded.judged == simulated.judged);
  CHECK(bounded.refused == simulated.refused);
  CHECK(bounded.end == simulated.end);
  CHECK(simulated.bounded == 0);
  return static_cast<double>(bounded.bounded) / static_cast<double>(bounded.judged);
}

// A step that is drawn for the strategy, so that the search goes many ways; one in eight strategies is refused.
Verdict drawn_verdict(const Job& job, double enough_s) {
  std::uint64_t drawn = 14695981039346656037U;  // FNV-1a
  for (const char c : print(job.strategy) + std::string(name_of(job.cluster.transport)))
    drawn = (drawn ^ static_cast<unsigned char>(c)) * 1099511628211U;
  drawn ^= drawn >> 29;
  if (drawn % 8 == 0) return {0, "drawn"};
  const double step_s = 1e3 + static_cast<double>(drawn / 8 % 200);
  const double bound_s = step_s * (1 - 0.01 * static_cast<double>(drawn / 1600 % 5));
  return bound_s >= enough_s ? Verdict{bound_s, "", {}, true} : Verdict{step_s, ""};
}

std::vector<Verdict> drawn_verdicts(const std::vector<Job>& jobs, double enough_s) {
  std::vector<Verdict> verdicts;
  for (const Job& job : jobs) verdicts.push_back(drawn_verdict(job, enough_s));
  return verdicts;
}

}  // namespace

TEST_CASE("bounds change no plan, whatever steps take", "[plan][slow]") {
  double bounded = 0;
  const int jobs = kSanitized ? 1 : 12;
  for (int seed = 1; seed <= jobs; ++seed) {
    CAPTURE(seed);
    bounded += check_same_plan(
        plannable_job(static_cast<unsigned>(seed)),
        [](const std::vector<Job>& list) { return drawn_verdicts(list, Goal::kNone); }, drawn_verdicts, 600);
  }
  CHECK(bounded > 0.3 * jobs);
}

TEST_CASE("a plan is the same whether or not what a recurrence rules out is simulated", "[plan][slow]") {
  double bounded = 0;
  const int jobs = kSanitized ? 1 : 6;
  for (int seed = 1; seed <= jobs; ++seed) {
    CAPTURE(seed);
    Job job = plannable_job(static_cast<unsigned>(seed));
    if (seed % 2 == 0) job.strategy = {};
    job.strategy.overlap_steps.reset();
    bounded += check_same_plan(job, simulating_judge(false), judge_below, 80);
  }
  CHECK(bounded > 0.25 * jobs);
}

TEST_CASE("no bound takes the place of a simulation where more than the shortest step counts", "[plan]") {
  PlanLimits limits{.evaluations = 30};
  limits.judge_below = [](const std::vector<Job>&, double) -> std::vector<Verdict> {
    FAIL("a bound was asked for");
    return {};
  };
  limits.goal.most_step_s = 1e9;
  CHECK(plan(plannable_job(3), simulating_judge(false), limits).bounded == 0);
  limits.goal = {};
  limits.policy = PlanPolicy::hethub;
  CHECK(plan(plannable_job(22), simulating_judge(false), limits).bounded == 0);
}

TEST_CASE("a plan whose time is over has a bound that holds and the best strategy until then", "[plan]") {
  const Job job = plannable_job(6);
  CountingJudge counting;
  const Judge judge = std::ref(counting);
  int asked = 0;
  PlanLimits limits;
  limits.has_time = [&] { return ++asked < 5; };
  const Plan planned = plan(job, judge, limits);
  CHECK(planned.end == PlanEnd::time);
  CHECK(planned.bound_s <= planned.simulated_s);
  CHECK(planned.simulated_s <= planned.own_s.value_or(planned.simulated_s));
}

TEST_CASE("a pipeline after HETHUB has stages on every group, each group's together", "[plan][slow]") {
  int planned = 0;
  for (unsigned seed = 21; seed <= 28; ++seed) {
    CAPTURE(seed);
    Job job = plannable_job(seed);
    job.strategy = {};
    CountingJudge counting;
    const Judge judge = std::ref(counting);
    try {
      const Plan best = plan(job, judge, {.policy = PlanPolicy::hethub});
      ++planned;
      CHECK(best.end == PlanEnd::all_judged);
      CHECK(best.job.strategy.schedule == Schedule::one_f_one_b);
      std::vector<std::string> order;
      for (const Stage& stage : best.job.strategy.templates.at(0).stages) {
        const std::string& group = stage.on.empty() ? job.cluster.groups.at(0).name : stage.on.at(0);
        if (order.empty() || group != order.back()) order.push_back(group);
      }
      CHECK(order.size() == job.cluster.groups.size());
      CHECK(std::set(order.begin(), order.end()).size() == order.size());
    } catch (const Refusal& refusal) {  // a group may be too small for a stage beside the others'
      CHECK(refusal.kind() == "no-plan");
    }
  }
  CHECK(planned > 4);
}

TEST_CASE("the only group of a cluster alone is the cluster, and its plan reaches what it reaches alone",
          "[plan][slow]") {
  int compared = 0;
  for (unsigned seed = 31; compared < 3; ++seed) {
    const Job job = plannable_job(seed);
    if (job.cluster.groups.size() > 1) continue;
    CAPTURE(seed);
    ++compared;
    CHECK(alone_on(job, 0).strategy.templates.empty());
    CHECK(alone_on(job, 0).cluster.groups == job.cluster.groups);
    Job anew = job;
    anew.strategy = {};
    CountingJudge counting;
    const Judge judge = std::ref(counting);
    const PlanLimits limits{.evaluations = 20};
    const std::vector<Baseline> baselines = plan_baselines(job, judge, limits);
    REQUIRE(baselines.size() == 1);
    CHECK(baselines[0].chips == job.cluster.chip_count());
    CHECK(speedup_ratio(plan(anew, judge, limits).simulated_s, baselines).value() == Approx(1));
  }
}

TEST_CASE("a group alone keeps its chips and what is slow in it", "[plan]") {
  for (unsigned seed = 40; seed <= 60; ++seed) {
    CAPTURE(seed);
    Job job = any_job(seed);
    const int chips = job.cluster.chip_count();
    job.cluster.slow = {Slow{.chip = 0, .factor = 0.5}, Slow{.chip = chips - 1, .factor = 0.25}};
    build_topology(job.cluster);
    int all = 0;
    for (std::size_t group = 0; group < job.cluster.groups.size(); ++group) {
      const Job alone = alone_on(job, static_cast<int>(group));
      CHECK(alone.cluster.groups == std::vector{job.cluster.groups[group]});
      for (int chip = 0; chip < alone.cluster.chip_count(); ++chip, ++all)
        CHECK(alone.cluster.speed_of(chip) == job.cluster.speed_of(all));
    }
    CHECK(all == chips);
  }
}

TEST_CASE("a mix is measured by what its groups reach alone", "[plan]") {
  const auto alone = [](std::optional<double> step_s) {
    Baseline baseline;
    baseline.step_s = step_s;
    return baseline;
  };
  CHECK(speedup_ratio(1.5, {alone(2), alone(6)}).value() == Approx(1));  // 1/2 + 1/6 = 1/1.5
  CHECK(speedup_ratio(3, {alone(2), alone(6)}).value() == Approx(0.5));
  CHECK_FALSE(speedup_ratio(1, {}));
  CHECK_FALSE(speedup_ratio(1, {alone(2), alone(std::nullopt)}));
}
