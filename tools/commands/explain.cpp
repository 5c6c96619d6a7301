// motley explain: where the seconds of a scenario's step go, how much time better parts and other strategies would
// save, or why one scenario is faster than another. Every answer is a simulation in a child process, and as many run at
// once as there are processors. It changes no file and does not search for the best strategy. Read next:
// models/explain/explain.hpp, runs.hpp.
#include "models/explain/explain.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/output_file.hpp"
#include "models/report/coverage.hpp"
#include "sim/workers/child.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/expected_speeds.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/scenario_flags.hpp"
#include "tools/commands/trials.hpp"

namespace motley {

namespace {

struct ExplainArguments {
  ScenarioFlags source;
  std::string other;
  double better = 10;  // percent
  bool no_fold = false;
  bool no_levers = false, no_changes = false, strict = false;
  bool json = false;
  std::string out;
  std::string memory;  // empty: not given
};

Prepared prepare_side(const ExplainArguments& options, const std::string& path) {
  Scenario scenario = load_scenario(path, options.source.settings);
  std::optional<bool>& fold = scenario.job.fidelity.fold;
  if (options.no_fold) fold = false;
  if (!fold) fold = true;
  Prepared prepared = prepare(std::move(scenario));
  expect_speeds(prepared, 0);
  return prepared;
}

// `strict`: refuses a prediction that rests on kernels outside what was measured; so are the changes that do.
Explained explain_side(const Prepared& prepared, const ExplainOptions& options, double allowed, bool strict) {
  const Job& job = prepared.scenario.job;
  SimOptions announcing;
  announcing.announce = [&](const MemoryNeed& need) { announce_memory(need, job, allowed); };
  const Trace trace = simulate_in_child(job, prepared.program, announcing);
  const std::string& path = prepared.scenario.path;
  if (strict) require_measured(coverage_of(prepared.program, job.cluster, trace), job.cluster, path);
  Explained explained = explain(job, prepared.program, trace, prepared.memory,
                                strict ? strict_trial(path) : Simulation(simulate_trial), options);
  explained.report.scenario = prepared.scenario.name;
  return explained;
}

std::string answer(const ExplainArguments& options) {
  const ExplainOptions whole{
      .factor = 1 + options.better / 100, .levers = !options.no_levers, .changes = !options.no_changes};
  const double allowed = allowed_memory(options.memory);
  const Prepared a = prepare_side(options, options.source.scenario);
  if (options.other.empty()) {
    const Explained explained = explain_side(a, in_pool(whole), allowed, options.strict);
    return options.json ? to_json(explained) : to_text(explained);
  }
  const Prepared b = prepare_side(options, options.other);
  const ExplainOptions path_alone{.factor = whole.factor, .levers = false, .changes = false};
  const Explained explained_a = explain_side(a, path_alone, allowed, options.strict),
                  explained_b = explain_side(b, path_alone, allowed, options.strict);
  const Why reasons =
      why({a.scenario.job, explained_a}, {b.scenario.job, explained_b}, simulate_trial, in_pool(path_alone));
  return options.json ? to_json(reasons) : to_text(reasons);
}

Exit run(const ExplainArguments& options) {
  open_outputs({options.out});
  write_result(answer(options), options.out);
  return Exit::ok;
}

}  // namespace

void add_explain(const Command& program) {
  const auto options = std::make_shared<ExplainArguments>();
  const Command command = program.subcommand(
      "explain", "Show what a step spends its time on, and simulate what would make it shorter");
  add_scenario(command, options->source);
  add_max_input(command);
  command.option("other", options->other, "a second scenario, to show why one of the two is faster");
  command
      .option("--better", options->better,
              "percent by which each part is made better (10: rates times 1.1, latencies divided by 1.1); "
              "default: 10")
      .between(0.001, 1000000.0);
  command.flag("--no-parts", options->no_levers, "do not simulate better parts");
  command.flag("--no-changes", options->no_changes, "do not simulate other strategies");
  command.flag(
      "--strict", options->strict,
      "refuse (exit 4) predictions in which a kernel or the optimizer rests on no measurement of its "
      "chip, or on a size outside the measured ones");
  command.flag("--no-fold", options->no_fold,
               "simulate every rank, not one rank of each class that must behave alike");
  add_memory_limit(command, options->memory);
  command.flag("--json", options->json, "print JSON (schema motley.explain/1)");
  command.option("--out", options->out, "write the result to this file instead of stdout");
  command.example(
      "motley explain scenarios/holmes-hybrid.yaml\n"
      "  motley explain scenarios/holmes-hybrid-6.yaml scenarios/holmes-hybrid.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
