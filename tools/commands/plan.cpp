// motley plan: finds a strategy for a scenario and says how far from the best possible it can be. Every strategy that
// closed forms propose is simulated in a child process, as many at once as there are processors. Read next:
// models/plan/planner.hpp, trials.hpp.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/text_file.hpp"
#include "models/explain/experiments.hpp"
#include "models/plan/plan_file.hpp"
#include "models/plan/plan_text.hpp"
#include "models/plan/planner.hpp"
#include "models/scenario/plan_request_fields.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/trials.hpp"

namespace motley {
namespace {

struct PlanArguments {
  std::string scenario;
  std::optional<std::string> policy, objective, time_limit, evaluations;
  bool baselines = false;
  bool json = false;
  std::string out, report;
};

template <class Form, class Value>
void use_option(const std::string& option, const std::optional<std::string>& text, const Form& form,
                Value& value) {
  if (text) form.read(node_of(option, *text), value);
}

PlanRequest asked(const PlanArguments& options, PlanRequest request) {
  use_option("--policy", options.policy, Word<PlanPolicy>{}, request.policy);
  use_option("--objective", options.objective, Word<PlanObjective>{}, request.objective);
  use_option("--time-limit", options.time_limit, PositiveSeconds{}, request.time_limit_s);
  use_option("--evaluations", options.evaluations, Integer{kEvaluations}, request.evaluations);
  return request;
}

std::vector<Verdict> judge(const std::vector<Job>& jobs) {
  std::vector<Verdict> verdicts;
  for (const Trial& trial :
       run_in_pool(jobs.size(), [&](std::size_t i) { return try_job(jobs[i], simulate_trial); }, {}))
    verdicts.push_back({trial.step_s, trial.refused});
  return verdicts;
}

// Writes the planned scenario. What was written must read back as what was planned: a path in the scenario, for
// example, may mean another file beside --out.
void write_planned(const std::string& text, const Yaml& root, const Plan& plan, const std::string& path) {
  const std::string planned = with_strategy(text, root, plan.job.strategy);
  const Scenario again = read_scenario(parse_yaml(planned, path), path);
  Cluster cluster = again.job.cluster;
  if (again.job.strategy != plan.job.strategy || again.job.transformer != plan.job.transformer ||
      again.job.train != plan.job.train || !(cluster == plan.job.cluster))
    throw Refusal(Exit::usage, "other-folder", {.file = path},
                  "the scenario would mean another job there, because it names files beside it",
                  "write it into the folder of the scenario");
  write_result(planned, path);
}

Exit run(const PlanArguments& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const std::string text = read_text_file(options.scenario);
  const Yaml root = parse_yaml(text, options.scenario);
  Scenario scenario = read_scenario(root, options.scenario, ScenarioUse::plan);
  const PlanRequest request = asked(options, scenario.plan);
  scenario.job.fidelity.fold = true;
  PlanLimits limits;
  limits.policy = request.policy;
  limits.evaluations = static_cast<std::size_t>(request.evaluations);
  note_interrupts();
  limits.has_time = [&] {
    return !was_interrupted() && (request.time_limit_s <= 0 || seconds() < request.time_limit_s);
  };
  Progress progress("strategy", request.evaluations);
  limits.progress = [&](std::size_t judged, double best_s, double bound_s) {
    progress.show(static_cast<std::int64_t>(judged), describe_progress(best_s, bound_s));
  };
  PlanReport report{scenario.name, request, plan(scenario.job, judge, limits)};
  report.search_s = seconds();
  if (options.baselines) report.baselines = plan_baselines(scenario.job, judge, limits);
  if (!options.out.empty()) write_planned(text, root, report.plan, options.out);
  write_result(options.json ? to_json(report) : to_text(report), options.report);
  return was_interrupted() ? Exit::interrupted : Exit::ok;
}

}  // namespace

void add_plan(const Command& program) {
  const auto options = std::make_shared<PlanArguments>();
  const Command command =
      program.subcommand("plan", "Find a strategy for a scenario, and say how far from the best it can be");
  command
      .option("scenario", options->scenario, "a scenario with `plan` or `strategy`, or - for standard input")
      .required();
  add_max_input(command);
  command.option("--policy", options->policy,
                 "optimal (default); hethub: every type of chips in one pipeline; megatron: uniform");
  command.option("--objective", options->objective, "time (default): the shortest step");
  command.option("--time-limit", options->time_limit,
                 "stop after this time, for example 10s, with the best strategy until then");
  command.option("--evaluations", options->evaluations, "strategies to simulate at most; default: 400");
  command.flag("--baselines", options->baselines,
               "plan each group of chips alone, too, and say what share of their sum the plan reaches");
  command.option("--out", options->out, "write the scenario with the chosen strategy to this file");
  command.flag("--json", options->json, "print JSON (schema motley.plan/1)");
  command.option("--report", options->report, "write the result to this file instead of stdout");
  command.example("motley plan scenarios/h2-four-types-1024.yaml --out planned.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
