// Judges one job for the planner: compiles, checks and simulates it, and counts what its step costs. Read next:
// models/plan/planner.hpp, models/explain/experiments.hpp.
#pragma once

#include "models/explain/experiments.hpp"
#include "models/plan/goal.hpp"

namespace motley {

// `needs_bill`: whether the verdict has the bill, as `motley simulate` counts it.
Verdict judge_job(const Job& job, const Simulation& simulation, bool needs_bill);

}  // namespace motley
