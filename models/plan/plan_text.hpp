// A plan for people and for programs. Read next: models/plan/planner.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "models/plan/baselines.hpp"
#include "models/plan/planner.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

struct PlanReport {
  std::string scenario;
  PlanRequest request;
  Plan plan;
  double search_s = 0;                   // seconds from the job to the plan
  std::vector<Baseline> baselines = {};  // of each group alone; empty: not asked for
};

// "best 14.9 s, at most 12 % above the best possible", for people who watch.
std::string describe_progress(PlanObjective objective, double best, double bound);

std::string to_text(const PlanReport& report);
nlohmann::ordered_json json_of(const PlanReport& report);
nlohmann::ordered_json json_of(const PlanReport& report);
std::string to_json(const PlanReport& report);  // schema motley.plan/1

}  // namespace motley
