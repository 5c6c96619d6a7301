// motley report: one page that shows a prediction to a person with a browser: how fast, where the step goes, memory,
// network, kernels, what would help, and the source of every figure. With two scenarios it shows both, and why one is
// faster. It simulates what `motley simulate` and `motley explain` do, and counts nothing of its own. Read next:
// models/page/page.hpp.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/output_file.hpp"
#include "models/page/page.hpp"
#include "models/report/coverage.hpp"
#include "sim/workers/child.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/expected_speeds.hpp"
#include "tools/commands/likely_step.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/scenario_flags.hpp"
#include "tools/commands/trials.hpp"

namespace motley {
namespace {

struct ReportArguments {
  ScenarioFlags source;
  std::string other, out, memory;  // empty: not given
  double better = 10;              // percent
  bool no_parts = false, no_changes = false;
  bool json = false;
};

// A scenario, its simulation, and the page's part of it.
struct ReportedSide {
  Prepared prepared;
  Trace trace;
  Explained explained;
};

ExplainOptions explain_options(const ReportArguments& options) {
  const bool alone = options.other.empty();  // two scenarios are explained by each other
  return in_pool({.factor = 1 + options.better / 100,
                  .levers = alone && !options.no_parts,
                  .changes = alone && !options.no_changes});
}

// Simulates in a child, because a process simulates only once.
ReportedSide simulate_side(const ReportArguments& options, const std::string& path) {
  Scenario scenario = load_scenario(path, options.source.settings);
  std::optional<bool>& fold = scenario.job.fidelity.fold;
  if (!fold) fold = true;
  ReportedSide side{prepare(std::move(scenario)), {}, {}};
  const Scenario& ready = side.prepared.scenario;
  std::optional<StepSpread> spread = expect_speeds(side.prepared, 0);
  const double allowed = allowed_memory(options.memory);
  SimOptions announcing;
  announcing.announce = [&](const MemoryNeed& need) { announce_memory(need, ready.job, allowed); };
  side.trace = simulate_in_child(ready.job, side.prepared.program, announcing);
  side.explained = explain(ready.job, side.prepared.program, side.trace, side.prepared.memory, simulate_trial,
                           explain_options(options));
  Report& report = side.explained.report;
  report.scenario = ready.name;
  report.measured_s = ready.measured_s;
  report.spread = std::move(spread);
  report.draws = draws_of(ready.job, !options.no_changes);
  if (rests_on_published_runs(ready.job.cluster)) {
    report.interval = ready.interval;
    report.own_s = simulate_own_figures(ready);
  }
  add_coverage(side.prepared, side.trace, report);
  return side;
}

Exit run(const ReportArguments& options) {
  if (!options.json) require_plots(plot_library_version());
  open_outputs({options.out});
  std::vector<ReportedSide> sides;
  sides.push_back(simulate_side(options, options.source.scenario));
  if (!options.other.empty()) sides.push_back(simulate_side(options, options.other));
  Page page{{}, std::nullopt, MOTLEY_VERSION};
  if (sides.size() == 2)
    page.why =
        why({sides[0].prepared.scenario.job, sides[0].explained},
            {sides[1].prepared.scenario.job, sides[1].explained}, simulate_trial, explain_options(options));
  for (ReportedSide& side : sides)
    page.sides.push_back(PageSide{side.prepared, side.trace, std::move(side.explained)});
  write_result(options.json ? to_json(page) : to_html(page), options.out);
  return Exit::ok;
}

}  // namespace

void add_report(const Command& program) {
  const auto options = std::make_shared<ReportArguments>();
  const Command command = program.subcommand(
      "report", "Write one page for a browser: how fast a scenario is, why, and what would help");
  add_scenario(command, options->source);
  add_max_input(command);
  command.option("other", options->other,
                 "a second scenario, to show beside the first, and why one is faster");
  command.option("-o,--out", options->out, "write the page to this file instead of stdout");
  command
      .option("--better", options->better,
              "percent by which each part is made better, as in motley explain; default: 10")
      .between(0.001, 1000000.0);
  command.flag("--no-parts", options->no_parts, "do not simulate better parts");
  command.flag("--no-changes", options->no_changes, "do not simulate other strategies");
  add_memory_limit(command, options->memory);
  command.flag("--json", options->json, "print the page's data as JSON (schema motley.report/1)");
  command.example(
      "motley report quickstart -o report.html\n"
      "  motley report quickstart mixed-fleet -o both.html");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
