#include "models/plan/goal.hpp"

#include <algorithm>
#include <cmath>

namespace motley {

std::int64_t steps_of_run(const Job& job, double tokens) {
  const double step_tokens =
      static_cast<double>(job.train.global_batch) * static_cast<double>(job.train.sequence);
  return static_cast<std::int64_t>(std::ceil(tokens / step_tokens));
}

double Goal::value(const Verdict& verdict) const {
  switch (objective) {
    case PlanObjective::time:
      return verdict.step_s;
    case PlanObjective::price:
      return verdict.bill.usd.value_or(kNone);
    case PlanObjective::energy:
      return verdict.bill.kwh.value_or(kNone);
    case PlanObjective::carbon:
      return verdict.bill.kg_co2e.value_or(kNone);
  }
  return kNone;
}

double Goal::excess(const Verdict& verdict) const {
  double most = 0;
  if (most_step_s < kNone) most = verdict.step_s / most_step_s;
  if (most_step_usd < kNone) most = std::max(most, verdict.bill.usd.value_or(kNone) / most_step_usd);
  return most;
}

bool Goal::is_better(const Verdict& a, const Verdict& b) const {
  const double a_excess = excess(a), b_excess = excess(b);
  if (a_excess <= 1 && b_excess <= 1) return value(a) < value(b);
  return a_excess < b_excess;
}

Goal goal_of(const PlanRequest& request, const Job& job) {
  Goal goal;
  goal.objective = request.objective;
  const double tokens = request.tokens > 0 ? request.tokens : job.train.tokens;
  if (tokens <= 0) return goal;
  const double a_step = job.train.goodput / static_cast<double>(steps_of_run(job, tokens));
  if (request.deadline_s > 0) goal.most_step_s = request.deadline_s * a_step;
  if (request.budget_usd > 0) goal.most_step_usd = request.budget_usd * a_step;
  return goal;
}

}  // namespace motley
