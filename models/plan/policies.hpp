// One job planned by every policy, side by side. Read next: models/plan/policy.hpp, policies_text.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/plan/planner.hpp"

namespace motley {

struct PolicyPlan {
  PlanPolicy policy = PlanPolicy::optimal;
  std::optional<Plan> plan;
  std::string refused;  // the first line of the Refusal where there is no plan
};

// Plans by every policy, in the order of PlanPolicy, each with as many evaluations as `limits` allows. `optimal` starts
// with the plans of the others, so none of them is faster. A job that several policies propose is simulated once.
// Throws Refusal("no-plan") if no policy finds a plan.
std::vector<PolicyPlan> plan_by_all(const Job& job, const Judge& judge, PlanLimits limits);

}  // namespace motley
