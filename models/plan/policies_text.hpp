// The plans of all policies for people and for programs. Read next: models/plan/policies.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/plan/plan_text.hpp"
#include "models/plan/policies.hpp"

namespace motley {

struct PoliciesReport {
  std::string scenario;
  PlanRequest request;
  std::vector<PolicyPlan> plans;
  double search_s = 0;                   // seconds of all searches together
  std::vector<Baseline> baselines = {};  // of each group alone, by `optimal`; empty: not asked for
};

// The fastest plan; of equal ones the first. Null: there is none.
const Plan* best_plan(const PoliciesReport& report);

std::string to_text(const PoliciesReport& report);
std::string to_json(const PoliciesReport& report);  // schema motley.policies/1

}  // namespace motley
