// The advice of `motley simulate`: a change of the strategy that was simulated, never one that only sounds right. Few
// changes are tried; `motley explain` tries more. Read next: models/plan/changes.hpp.
#pragma once

#include <cstddef>

#include "models/explain/experiments.hpp"
#include "models/report/report.hpp"

namespace motley {

struct AdviceOptions {
  std::size_t most = 4;  // changes to simulate
  TrialRunner run_trials = run_one_by_one;
};

// Simulates changes against what the step of the report loses most to, and advises the one with the shortest step, if
// it shortens the step by at least 0.05 %.
Advice advise(const Job& job, const Report& report, const Simulation& simulation,
              const AdviceOptions& options = {});

}  // namespace motley
