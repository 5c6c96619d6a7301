// Fuzz target: a scenario is read, compiled and checked, and where it is small its Program runs in no time and in
// virtual time, and the report is printed. The simulation runs in a child, because a process simulates only once.
#include "models/plan/prepare.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

void simulate_small(const Prepared& prepared) {
  const Job& job = prepared.scenario.job;
  const Trace null = simulate(job, prepared.program, {.null = true});
  check_finite(to_text(make_report(job, prepared.program, null, prepared.memory)));
  const Trace trace = simulate_in_child(job, prepared.program);
  const Report report = make_report(job, prepared.program, trace, prepared.memory);
  check_finite(to_text(report));
  check_finite(to_json(report));
}

}  // namespace

void take(const std::string& input) {
  const Yaml node = parse_yaml(input, "input.yaml");
  if (has_many_chips(node)) return;
  Scenario scenario = read_scenario(node, "input.yaml");
  if (estimated_passes(scenario.job.strategy) > kMostInstructions) return;
  scenario.job.fidelity.fold = scenario.job.fidelity.fold.value_or(true);
  const Prepared prepared = prepare(std::move(scenario));
  if (instruction_count(prepared.program) <= kMostInstructions) simulate_small(prepared);
}

}  // namespace motley::tests
