#include "tools/commands/trials.hpp"

#include <tuple>
#include <type_traits>

#include "sim/workers/child.hpp"

namespace motley {

template <class T>
requires std::is_same_v<std::remove_const_t<T>, Trial>
auto fields_of(T& trial) {
  auto& [step_s, refused] = trial;
  return std::tie(step_s, refused);
}

Trace simulate_trial(const Job& job, const Program& program) { return simulate(job, program); }

std::vector<Trial> run_in_pool(std::size_t count, const std::function<Trial(std::size_t trial)>& trial,
                               const std::function<void(std::size_t trial, std::size_t ended)>& progress) {
  return map_in_pool(count, trial,
                     {.name = [](std::size_t) { return "a simulation"; }, .progress = progress});
}

}  // namespace motley
