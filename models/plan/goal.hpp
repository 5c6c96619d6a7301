// What makes one strategy better than another for a plan: its objective, and the targets of the whole run that it must
// meet. Read next: models/plan/goal_bound.hpp, models/plan/planner.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "models/report/spending.hpp"
#include "models/scenario/job.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

// What a simulation says of a job.
struct Verdict {
  double step_s = 0;      // 0: the job is refused
  std::string refused;    // the first line of its Refusal
  Bill bill = {};         // of the step; nothing is known unless it was asked for
  bool is_bound = false;  // the step takes at least step_s, and was not simulated
  bool stands() const { return refused.empty(); }
};

// Steps of a run of so many tokens, of which the last is a whole step; 0 tokens: 0.
std::int64_t steps_of_run(const Job& job, double tokens);

struct Goal {
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  PlanObjective objective = PlanObjective::time;
  double most_step_s = kNone, most_step_usd = kNone;  // targets, for one step

  // Seconds, USD, kWh or kg CO2e of a step; infinite: unknown.
  double value(const Verdict& verdict) const;
  // The largest ratio of what the step takes to what it may take; 0: there are no targets.
  double excess(const Verdict& verdict) const;
  bool is_met(const Verdict& verdict) const { return excess(verdict) <= 1; }
  // A verdict that meets the targets is better than one that misses them; of two that meet them, that of the lower
  // value; of two that miss them, that which misses them by less.
  bool is_better(const Verdict& a, const Verdict& b) const;
  bool has_targets() const { return most_step_s < kNone || most_step_usd < kNone; }
  // The shortest step is all that counts.
  bool is_shortest_step() const { return objective == PlanObjective::time && !has_targets(); }
  // Verdicts must have the bill.
  bool needs_bill() const { return objective != PlanObjective::time || most_step_usd < kNone; }
};

// The goal of the request; targets of a run are divided by its steps, and by the job's goodput.
Goal goal_of(const PlanRequest& request, const Job& job);

}  // namespace motley
