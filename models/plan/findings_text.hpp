// Parts of the reports on plans that several of them have. Read next: models/plan/plan_text.hpp, policies_text.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/plan/baselines.hpp"
#include "models/plan/planner.hpp"

namespace motley {

// ", ablated: sockets"; empty where nothing is ablated.
std::string ablations_text(const std::vector<Ablation>& ablations);

// What the policy measured and chose on the way, and the step of each form that it tried: a line each.
std::string findings_text(const Plan& plan, std::string_view indent);

// What each group reaches alone, whether it recomputes or offloads then, and what share of their sum a step of that
// length reaches. Empty without baselines.
std::string baselines_text(double step_s, const std::vector<Baseline>& baselines);

}  // namespace motley
