// Plans for time, price, energy and carbon, under deadlines and budgets: no simulated strategy passes a bound, and a
// plan is the best that was judged.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/base/words.hpp"
#include "models/compile/compile.hpp"
#include "models/explain/plan_judge.hpp"
#include "models/plan/goal_bound.hpp"
#include "models/plan/planner.hpp"
#include "models/plan/work_bound.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/priced_jobs.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Trace in_child(const Job& job, const Program& program) { return simulate_in_child(job, program); }

// Judges one job after the other, and keeps the verdicts.
class KeepingJudge {
 public:
  std::vector<Verdict> operator()(const std::vector<Job>& jobs) {
    std::vector<Verdict> here;
    for (const Job& job : jobs) here.push_back(judge_job(job, in_child, true));
    verdicts.insert(verdicts.end(), here.begin(), here.end());
    return here;
  }
  std::vector<Verdict> verdicts;
};

constexpr double kRounding = 1 + 1e-9;

void check_bounds(unsigned first, unsigned last) {
  double closest = 0;
  for (unsigned seed = first; seed < last; ++seed) {
    Job job = any_job(seed);
    job.fidelity.fold = true;
    price_chips(job, seed);
    StagePricer pricer(job);
    const GoalBounds bounds(job, pricer);
    const Verdict verdict = judge_job(job, in_child, true);
    REQUIRE(verdict.stands());
    Dice dice(seed);
    for (const PlanObjective objective : every<PlanObjective>())
      for (const double slack : {0.0, 1.0, dice.one_of({1.01, 1.5, 4.0})}) {
        Goal goal{objective};
        if (slack > 0) goal.most_step_s = slack * verdict.step_s;
        if (slack > 1) goal.most_step_usd = *verdict.bill.usd * dice.one_of({1.0, 1.2, 2.0});
        const double bound = bounds.least_value(goal);
        CAPTURE(seed, name_of(objective), slack, bound, goal.value(verdict));
        CHECK(bound > 0);
        CHECK(bound <= goal.value(verdict) * kRounding);
        CHECK(bound >= bounds.least_value({objective}) / kRounding);
        closest = std::max(closest, bound / goal.value(verdict));
      }
    // No target that is just missed by the bound alone can be met.
    CHECK(bounds.least_value({PlanObjective::price, bounds.least_value({}) / 1.001}) == Goal::kNone);
  }
  CHECK(closest > 0.2);  // a bound far below every step would hold, too
}

}  // namespace

TEST_CASE("no strategy passes the bound of an objective, with or without targets that it meets",
          "[plan][slow]") {
  check_bounds(1, 40);
}
TEST_CASE("no strategy of a thousand passes the bound of an objective", "[.thousand]") {
  check_bounds(3000, 4000);
}

TEST_CASE("the bound of the time of all chips is at least the work bound", "[plan]") {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const Job job = priced_job(seed);
    StagePricer pricer(job);
    CHECK(GoalBounds(job, pricer).least_value({}) >= work_bound_s(job, pricer) / kRounding);
  }
}

TEST_CASE("the bill of a verdict is that of the report", "[plan]") {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    const Job job = priced_job(seed);
    const Program program = compile(job);
    const Bill bill = make_report(job, program, in_child(job, program)).spending.step;
    const Verdict verdict = judge_job(job, in_child, true);
    CHECK(verdict.bill.usd == bill.usd);
    CHECK(verdict.bill.kwh == bill.kwh);
    CHECK(verdict.bill.kg_co2e == bill.kg_co2e);
    CHECK_FALSE(judge_job(job, in_child, false).bill.usd);
  }
}

TEST_CASE("a plan is the best of what was judged, for every objective, and no other plan has a lower value",
          "[plan][slow]") {
  for (unsigned seed = 1; seed <= (kSanitized ? 1 : 3); ++seed) {
    const Job job = priced_job(seed);
    std::vector<Verdict> chosen;
    for (const PlanObjective objective : every<PlanObjective>()) {
      CAPTURE(seed, name_of(objective));
      KeepingJudge keeping;
      PlanLimits limits;
      limits.evaluations = kSanitized ? 20 : 60;
      limits.goal = {objective};
      const Plan best = plan(job, std::ref(keeping), limits);
      CHECK(best.value_bound <= best.value() * kRounding);
      for (const Verdict& verdict : keeping.verdicts)
        if (verdict.stands()) CHECK(best.value() <= limits.goal.value(verdict));
      chosen.push_back(best.verdict);
    }
    CHECK(chosen[1].bill.usd <= chosen[0].bill.usd);  // price, time
  }
}

TEST_CASE("a plan under a deadline and a budget meets them, or is refused", "[plan][slow]") {
  int met = 0, refused = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 1 : 3); ++seed) {
    const Job job = priced_job(seed);
    KeepingJudge keeping;
    const Judge judge = std::ref(keeping);
    PlanLimits limits;
    limits.evaluations = kSanitized ? 12 : 30;
    const Plan fastest = plan(job, judge, limits);
    limits.goal = {PlanObjective::price};
    const Plan cheapest = plan(job, judge, limits);
    for (const double share : {0.5, 0.98, 1.0, 1.5, 4.0}) {
      CAPTURE(seed, share);
      limits.goal = {PlanObjective::price, share * fastest.verdict.step_s};
      if (share == 1.5) limits.goal = {PlanObjective::time, Goal::kNone, share * *cheapest.verdict.bill.usd};
      try {
        const Plan best = plan(job, judge, limits);
        ++met;
        CHECK(limits.goal.is_met(best.verdict));
        CHECK(best.value_bound <= best.value() * kRounding);
      } catch (const Refusal& refusal) {
        ++refused;
        CHECK(refusal.kind() == "misses-target");
        for (const Verdict& verdict : keeping.verdicts)
          if (verdict.stands() && share < 0.9) CHECK_FALSE(limits.goal.is_met(verdict));
      }
    }
  }
  CHECK(met > (kSanitized ? 1 : 3));
  CHECK(refused > (kSanitized ? 0 : 1));
}

TEST_CASE("the gap of a plan never grows while it is looked for, and ends at that of the plan",
          "[plan][slow]") {
  for (const PlanObjective objective : every<PlanObjective>()) {
    const Job job = priced_job(5);
    KeepingJudge keeping;
    PlanLimits limits;
    limits.evaluations = 40;
    limits.goal = {objective};
    double before = Goal::kNone, bound_before = 0;
    limits.progress = [&](std::size_t, double best, double bound) {
      CHECK(bound > 0);
      if (bound_before > 0) CHECK(bound == bound_before);
      bound_before = bound;
      if (best == 0) return;
      CHECK(best <= before);
      CHECK(bound <= best * kRounding);
      before = best;
    };
    CHECK(plan(job, std::ref(keeping), limits).value() == before);
  }
}

TEST_CASE("targets of a run are shared out over its steps, lost ones among them", "[plan]") {
  Job job = priced_job(1);
  job.train.goodput = 0.5;
  const double tokens_of_step =
      static_cast<double>(job.train.global_batch) * static_cast<double>(job.train.sequence);
  PlanRequest request;
  request.tokens = 9.5 * tokens_of_step;
  request.deadline_s = 1000;
  request.budget_usd = 50;
  CHECK(steps_of_run(job, request.tokens) == 10);
  CHECK(goal_of(request, job).most_step_s == Approx(50));
  CHECK(goal_of(request, job).most_step_usd == Approx(2.5));
  CHECK_FALSE(goal_of({}, job).has_targets());
}
