#include "models/explain/plan_judge.hpp"

#include <utility>

#include "models/report/report.hpp"

namespace motley {

Verdict judge_job(const Job& job, const Simulation& simulation, bool needs_bill) {
  Verdict verdict;
  const Simulation counted = [&](const Job& tried, const Program& program) {
    Trace trace = simulation(tried, program);
    if (needs_bill) verdict.bill = spending_of(tried, program, trace).step;
    return trace;
  };
  const Trial trial = try_job(job, counted);
  verdict.step_s = trial.step_s;
  verdict.refused = trial.refused;
  return verdict;
}

}  // namespace motley
