// How explain, simulate and plan try changed jobs: each in a child process, as many at once as there are processors.
// Read next: models/explain/experiments.hpp, sim/workers/pool.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "models/explain/experiments.hpp"
#include "models/explain/explain.hpp"
#include "models/plan/planner.hpp"

namespace motley {

// The simulation of a trial, which has a process of its own already.
Trace simulate_trial(const Job& job, const Program& program);

// The same under --strict: throws what require_measured() throws. `scenario`: the path for its messages.
Simulation strict_trial(const std::string& scenario);

// A TrialRunner.
std::vector<Trial> run_in_pool(std::size_t count, const std::function<Trial(std::size_t trial)>& trial,
                               const std::function<void(std::size_t trial, std::size_t ended)>& progress);

// A JudgeBelow: what the recurrence of its Program rules out is not simulated.
JudgeBelow judge_below_in_pool();

// The options with trials in the pool, and with progress that is counted in simulations.
ExplainOptions in_pool(ExplainOptions options);

// A Judge that fills in bills if they are needed.
Judge judge_in_pool(bool needs_bill);

}  // namespace motley
