// motley validate: predicts training runs that others measured and published, and says how wrong that is. Runs are
// simulated by tools/predict_runs.hpp. Read next: models/published_run.hpp, models/validation.hpp.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "models/published_run.hpp"
#include "models/validation.hpp"
#include "tools/command.hpp"
#include "tools/predict_runs.hpp"
#include "tools/validate_claims.hpp"
#include "tools/validate_collectives.hpp"

namespace motley {
namespace {

struct Options {
  std::vector<std::string> what;
  bool rows = false, json = false, no_memory = false, collectives = false, claims = false;
  std::string show, out;
};

// Files of runs, and sets to take of them; no file: the runs that ship.
std::vector<PublishedRun> chosen_runs(const std::vector<std::string>& what) {
  std::vector<PublishedRun> runs;
  std::vector<std::string> sets;
  for (const std::string& each : what) {
    if (!each.ends_with(".csv")) {
      sets.push_back(each);
      continue;
    }
    for (PublishedRun& run : read_published_runs(each)) runs.push_back(std::move(run));
  }
  if (sets.size() == what.size())
    runs = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  if (sets.empty()) return runs;
  std::vector<std::string> known;
  for (const PublishedRun& run : runs)
    if (std::find(known.begin(), known.end(), run.set) == known.end()) known.push_back(run.set);
  for (const std::string& set : sets)
    if (std::find(known.begin(), known.end(), set) == known.end())
      throw Refusal(Exit::usage, "unknown-set", {}, "no run of a set `" + set + "`", suggest(set, known));
  std::erase_if(runs, [&](const PublishedRun& run) {
    return std::find(sets.begin(), sets.end(), run.set) == sets.end();
  });
  return runs;
}

std::string scenario_text(const Measured& run) {
  const Job& job = run.scenario.job;
  return print(job.transformer) + "---\n" + print(job.cluster) + "---\n" + print(job.strategy);
}

Exit run(const Options& options) {
  if (options.claims) {
    write_result(validate_claims(options.json), options.out);
    return Exit::ok;
  }
  if (options.collectives) {
    write_result(validate_collectives(options.what, options.rows, options.json), options.out);
    return Exit::ok;
  }
  const std::vector<PublishedRun> all = chosen_runs(options.what);
  std::vector<const PublishedRun*> shown;
  for (const PublishedRun& each : all)
    if (options.show.empty() || each.id == options.show) shown.push_back(&each);
  PredictedRuns runs = read_runs(PublishedRules(), shown, all);
  if (!options.show.empty() && runs.measured.size() == 1 && runs.measured[0]) {
    write_result(scenario_text(*runs.measured[0]), options.out);
    return Exit::ok;
  }
  predict_all({.memory = !options.no_memory}, runs);
  write_result(options.json ? to_json(runs.outcomes) : to_text(runs.outcomes, options.rows), options.out);
  return Exit::ok;
}

}  // namespace

void add_validate(CLI::App& program, Chosen& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "validate", "Predict training runs that others measured, and say how wrong that is");
  CLI::Option* const what = command->add_option(
      "what", options->what, "tables of runs (.csv), and sets to take of them; default: the runs that ship");
  command->add_flag("--rows", options->rows, "print every run, not the summary alone");
  command->add_option("--show", options->show, "print what is made of this run, instead of predicting it");
  CLI::Option* const collectives = command->add_flag("--collectives", options->collectives,
                                                     "collectives that others timed, instead of runs");
  command->add_flag("--claims", options->claims, "what papers claim of whole systems, instead of runs")
      ->excludes(what)
      ->excludes(collectives);
  command->add_flag("--no-memory", options->no_memory, "times alone: sooner");
  command->add_flag("--json", options->json, "print JSON (schema motley.validate/1)");
  command->add_option("--out", options->out, "write the result to this file instead of stdout");
  command->footer(footer("motley validate sc21 --rows"));
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace motley
