#include "models/explain/plan_judge.hpp"

#include <optional>
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

Verdict judge_job(const Job& job, const BoundedSimulation& simulation) {
  std::optional<double> bound_s;
  const Simulation bounded = [&](const Job& tried, const Program& program) {
    TraceOrBound result = simulation(tried, program);
    if (Trace* const trace = std::get_if<Trace>(&result)) return std::move(*trace);
    bound_s = std::get<double>(result);
    return Trace{};
  };
  Verdict verdict = judge_job(job, bounded, false);
  verdict.is_bound = bound_s.has_value();
  if (bound_s) verdict.step_s = *bound_s;
  return verdict;
}

}  // namespace motley
