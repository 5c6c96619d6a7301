#include "tools/fit/predictor.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace motley::fit {
namespace {

void refuse_other_software(const Plan& plan, const PublishedRules& rules) {
  for (const SoftwarePlan& each : plan.software)
    for (const std::string& set : each.sets)
      if (const auto software = rules.software_of(set); software != each.name)
        throw Refusal(Exit::usage, "unknown-value", {.file = "platforms/published/fit.yaml"},
                      fmt::format("the set `{}` is said to be of `{}`", set, each.name),
                      software ? fmt::format("platforms/published/unprinted.yaml says `{}`", *software)
                               : "platforms/published/unprinted.yaml knows no software of it");
}

FitRun fit_run(const PublishedRun& run, const Measured& measured, const Plan& plan,
               const PublishedRules& rules) {
  const auto chip = rules.chip_of(run.row["accelerator"]);
  MOTLEY_CHECK(chip.has_value());
  return {run.id,
          run.set,
          plan.of_set(run.set)->name,
          *chip,
          size_of(run, plan),
          measured.step_s,
          measured_on(measured.scenario.job.cluster)};
}

}  // namespace

std::string size_of(const PublishedRun& run, const Plan& plan) {
  const auto columns = plan.left_out_by.find(run.set);
  if (columns == plan.left_out_by.end())
    return "hidden " + (run.row["hidden"].empty() ? run.row["model_name"] : run.row["hidden"]);
  std::string size = run.set;
  for (const std::string& column : columns->second) size += " " + run.row[column];
  return size;
}

Table read_table(const std::string& path, const Plan& plan) {
  PublishedRules rules;
  refuse_other_software(plan, rules);
  rules.use(no_figures(plan));
  Table table;
  table.rows = read_published_runs(path);
  for (const PublishedRun& run : table.rows) {
    if (plan.of_set(run.set) == nullptr || !rules.chip_of(run.row["accelerator"])) continue;
    const auto read = rules.read(run, table.rows);
    const Measured* const measured = std::get_if<Measured>(&read);
    if (measured == nullptr) continue;
    if (measured->experts) {
      table.with_experts.push_back(&run);
      continue;
    }
    table.taking_part.push_back(&run);
    table.runs.push_back(fit_run(run, *measured, plan, rules));
  }
  if (table.runs.empty())
    throw Refusal(Exit::usage, "bad-csv", {.file = path}, "no run in it takes part in the fit",
                  fmt::format("runs of these sets take part: {}", fmt::join(plan.sets(), ", ")));
  return table;
}

void refuse_passed_over(const std::vector<RunOutcome>& outcomes) {
  for (const RunOutcome& each : outcomes)
    if (!each.passed_over.empty())
      throw RunFailure(
          fmt::format("{} cannot be predicted by the figures tried: {}", each.id, each.passed_over));
}

std::vector<double> SimulatedRuns::step_s(const Eigen::VectorXd& values) {
  rules_.use(figures_.trial(values));
  const ChosenRuns chosen{rules_, runs_, table_};
  if (programs_.empty()) programs_ = compile_runs(chosen);
  const std::vector<RunOutcome> outcomes =
      predict_runs(chosen, {.memory = false, .unseen = false, .compiled = &programs_});
  refuse_passed_over(outcomes);
  std::vector<double> steps;
  for (const RunOutcome& each : outcomes) steps.push_back(each.predicted.seconds);
  return steps;
}

std::vector<RunOutcome> predicted(const PublishedRules& rules, const std::vector<const PublishedRun*>& runs,
                                  const std::vector<PublishedRun>& table, bool unseen) {
  return predict_runs({rules, runs, table}, {.memory = false, .unseen = unseen});
}

}  // namespace motley::fit
