// How explain and simulate try changed jobs: each in a child process, as many at once as there are processors. Read
// next: models/explain/experiments.hpp, sim/workers/pool.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "models/explain/experiments.hpp"
#include "models/plan/goal.hpp"

namespace motley {

// The simulation of a trial, which has a process of its own already.
Trace simulate_trial(const Job& job, const Program& program);

// A Verdict of the planner crosses from process to process.
template <class T>
requires std::is_same_v<std::remove_const_t<T>, Bill>
auto fields_of(T& bill) {
  auto& [usd, kwh, kwh_at_most, electricity_usd, kg_co2e] = bill;
  return std::tie(usd, kwh, kwh_at_most, electricity_usd, kg_co2e);
}
template <class T>
requires std::is_same_v<std::remove_const_t<T>, Verdict>
auto fields_of(T& verdict) {
  auto& [step_s, refused, bill] = verdict;
  return std::tie(step_s, refused, bill);
}

// A TrialRunner.
std::vector<Trial> run_in_pool(std::size_t count, const std::function<Trial(std::size_t trial)>& trial,
                               const std::function<void(std::size_t trial, std::size_t ended)>& progress);

}  // namespace motley
