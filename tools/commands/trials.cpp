#include "tools/commands/trials.hpp"

#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>

#include "models/explain/plan_judge.hpp"
#include "models/report/coverage.hpp"
#include "sim/workers/child.hpp"
#include "tools/commands/progress.hpp"

namespace motley {

template <class T>
requires std::is_same_v<std::remove_const_t<T>, Trial>
auto fields_of(T& trial) {
  auto& [step_s, refused] = trial;
  return std::tie(step_s, refused);
}
template <class T>
requires std::is_same_v<std::remove_const_t<T>, Bill>
auto fields_of(T& bill) {
  auto& [usd, kwh, kwh_at_most, electricity_usd, kg_co2e] = bill;
  return std::tie(usd, kwh, kwh_at_most, electricity_usd, kg_co2e);
}
template <class T>
requires std::is_same_v<std::remove_const_t<T>, Verdict>
auto fields_of(T& verdict) {
  auto& [step_s, refused, bill, is_bound] = verdict;
  return std::tie(step_s, refused, bill, is_bound);
}

namespace {

SimOptions trial_options() {
  SimOptions options;
  options.hashes_program = false;  // nobody reads it
  return options;
}

}  // namespace

Trace simulate_trial(const Job& job, const Program& program) {
  return simulate(job, program, trial_options());
}

Simulation strict_trial(const std::string& scenario) {
  return [scenario](const Job& job, const Program& program) {
    Trace trace = simulate_trial(job, program);
    require_measured(coverage_of(program, job.cluster, trace), job.cluster, scenario);
    return trace;
  };
}

std::vector<Trial> run_in_pool(std::size_t count, const std::function<Trial(std::size_t trial)>& trial,
                               const std::function<void(std::size_t trial, std::size_t ended)>& progress) {
  return map_in_pool(count, trial,
                     {.name = [](std::size_t) { return "a simulation"; }, .progress = progress});
}

JudgeBelow judge_below_in_pool() {
  return [](const std::vector<Job>& jobs, double enough_s) {
    const BoundedSimulation simulation = [enough_s](const Job& job, const Program& program) -> TraceOrBound {
      SimulatedOrBound result = simulate_below(enough_s, job, program, trial_options());
      if (Trace* const trace = std::get_if<Trace>(&result)) return std::move(*trace);
      return std::get<Recurrence>(result).step_s;
    };
    return map_in_pool(jobs.size(), [&](std::size_t i) { return judge_job(jobs[i], simulation); },
                       {.name = [](std::size_t) { return "a simulation"; }});
  };
}

ExplainOptions in_pool(ExplainOptions options) {
  options.run_trials = run_in_pool;
  const auto progress = std::make_shared<std::unique_ptr<Progress>>();
  options.progress = [progress](std::int64_t done, std::int64_t total, const std::string& what) {
    if (*progress == nullptr) *progress = std::make_unique<Progress>("simulation", total);
    (*progress)->show(done, what);
  };
  return options;
}

Judge judge_in_pool(bool needs_bill) {
  return [needs_bill](const std::vector<Job>& jobs) {
    return map_in_pool(jobs.size(),
                       [&](std::size_t i) { return judge_job(jobs[i], simulate_trial, needs_bill); },
                       {.name = [](std::size_t) { return "a simulation"; }});
  };
}

}  // namespace motley
