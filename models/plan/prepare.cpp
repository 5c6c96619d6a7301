// Gives every refusal of a whole scenario its place in the file, and a refusal for too little memory its remedies.
#include "models/plan/prepare.hpp"

#include <utility>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/remedies.hpp"

namespace motley {
namespace {

template <class Action>
auto placing_refusals(const Scenario& scenario, Action action) {
  try {
    return action();
  } catch (const Refusal& refusal) {
    if (refusal.exit_code() != Exit::infeasible) throw;
    throw located(refusal,
                  refusal.kind() == "unreachable" ? scenario.cluster_location : scenario.strategy_location);
  }
}

}  // namespace

Program compile(const Scenario& scenario) {
  return placing_refusals(scenario, [&] { return compile(scenario.job); });
}

std::vector<StageMemory> check(const Program& program, const Scenario& scenario) {
  return placing_refusals(scenario, [&] {
    try {
      return check(program, scenario.job.cluster, scenario.job.train.fragmentation);
    } catch (const Refusal& refusal) {
      if (refusal.kind() != "out-of-memory") throw;
      throw Refusal(refusal.exit_code(), refusal.kind(), refusal.where(), refusal.message(),
                    describe(remedies(scenario.job)), refusal.site());
    }
  });
}

Prepared prepare_plainly(Scenario scenario) {
  Program program = compile(scenario);
  std::vector<StageMemory> memory = placing_refusals(
      scenario, [&] { return check(program, scenario.job.cluster, scenario.job.train.fragmentation); });
  return {.scenario = std::move(scenario), .program = std::move(program), .memory = std::move(memory)};
}

Prepared prepare(Scenario scenario) {
  Program program = compile(scenario);
  std::vector<StageMemory> memory = check(program, scenario);
  return {.scenario = std::move(scenario), .program = std::move(program), .memory = std::move(memory)};
}

}  // namespace motley
