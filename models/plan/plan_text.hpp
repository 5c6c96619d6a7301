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

// Parts of a report: what it does without (" without sockets"), empty where nothing is ablated; what the policy measured
// and chose, a line each; and what the groups reach alone.
std::string ablations_text(const std::vector<Ablation>& ablations);
std::string findings_text(const Plan& plan, std::string_view indent);
std::string baselines_text(double step_s, const std::vector<Baseline>& baselines);

std::string to_text(const PlanReport& report);
nlohmann::ordered_json json_of(const PlanReport& report);
nlohmann::ordered_json json_of(const PlanReport& report);
std::string to_json(const PlanReport& report);  // schema motley.plan/1

}  // namespace motley
