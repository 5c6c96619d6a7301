// motley validate --collectives: predicts collectives that others timed, each on an idle cluster, and says how wrong
// that is. Read next: models/collective_errors.hpp.
#include "tools/validate_collectives.hpp"

#include "models/collective_errors.hpp"
#include "models/compute_cost.hpp"
#include "models/scenario.hpp"
#include "sim/world.hpp"
#include "tools/command.hpp"
#include "tools/progress.hpp"

namespace motley {
namespace {

CollectiveOutcome predict(const MeasuredCollective& measured) {
  const CollectiveRun run = make_run(measured);
  CollectiveOutcome made{measured, launch_s(measured), "-"};
  if (measured.kind) {
    CostTable costs(run.program, run.job.cluster);
    made.algorithm = name_of(costs.algorithm_of(*measured.kind, 0, measured.algorithm, measured.bytes));
  }
  double end_s = 0;
  for (const TraceEvent& event : simulate_in_child(run.job, run.program).events)
    end_s = std::max(end_s, event.end_s);
  made.predicted_s += end_s;
  return made;
}

}  // namespace

std::string validate_collectives(const std::vector<std::string>& tables, bool rows, bool json) {
  std::vector<MeasuredCollective> all;
  if (tables.empty()) all = read_measured_collectives(data_folder() + "/tests/validation/collectives.csv");
  for (const std::string& table : tables)
    for (MeasuredCollective& each : read_measured_collectives(table)) all.push_back(std::move(each));
  Progress progress("predicting", static_cast<std::int64_t>(all.size()));
  std::vector<CollectiveOutcome> outcomes;
  for (const MeasuredCollective& each : all) {
    outcomes.push_back(predict(each));
    progress.show(static_cast<std::int64_t>(outcomes.size()));
  }
  return json ? to_json(outcomes) : to_text(outcomes, rows);
}

}  // namespace motley
