// Fuzz target: a scenario that asks for a plan is read, and what it asks is checked against its job.
#include "models/plan/goal.hpp"
#include "models/scenario/plan_request_check.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  const Yaml node = parse_yaml(input, "input.yaml");
  if (has_many_chips(node)) return;
  const Scenario scenario = read_scenario(node, "input.yaml", ScenarioUse::plan);
  check_request(scenario.plan, scenario.plan_places, scenario.job);
  const Goal goal = goal_of(scenario.plan, scenario.job);
  MOTLEY_CHECK(goal.most_step_s > 0 && goal.most_step_usd > 0);
}

}  // namespace motley::tests
