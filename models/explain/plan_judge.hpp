// Judges one job for the planner: compiles, checks and simulates it, and counts what its step costs. Read next:
// models/plan/planner.hpp, models/explain/experiments.hpp.
#pragma once

#include <functional>
#include <variant>

#include "models/explain/experiments.hpp"
#include "models/plan/goal.hpp"

namespace motley {

// `needs_bill`: whether the verdict has the bill, as `motley simulate` counts it.
Verdict judge_job(const Job& job, const Simulation& simulation, bool needs_bill);

// The Trace of a step, or only the seconds that it takes at least.
using TraceOrBound = std::variant<Trace, double>;
using BoundedSimulation = std::function<TraceOrBound(const Job&, const Program&)>;
// The same without bill. The verdict may be a bound.
Verdict judge_job(const Job& job, const BoundedSimulation& simulation);

}  // namespace motley
