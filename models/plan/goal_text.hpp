// The goal of a plan for people and for programs. Read next: models/plan/goal.hpp, models/plan/plan_text.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/plan/plan_text.hpp"

namespace motley {

// A value of the objective with its unit: "6.85 s", "0.209 USD", "0.0208 kWh", "0.0079 kg CO2e".
std::string format_value(PlanObjective objective, double value);

// What the plan's step takes of the objective beside its bound, and the whole run beside its targets; empty: the goal
// is the shortest step.
std::string goal_lines(const PlanReport& report);
// The same as keys: `value`, `value_bound`, `value_gap`, and the step's price, energy and carbon where they are known.
void add_goal(const PlanReport& report, nlohmann::ordered_json& json);

}  // namespace motley
