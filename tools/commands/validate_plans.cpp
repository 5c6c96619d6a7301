// Jobs are planned one after the other; the simulations of one plan run in the pool.
#include "tools/commands/validate_plans.hpp"

#include <utility>
#include <variant>

#include "models/base/refusal.hpp"
#include "models/plan/planner.hpp"
#include "models/published/layout_choices.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/trials.hpp"

namespace motley {
namespace {

Job read_job(const PublishedRules& rules, const std::vector<PublishedRun>& runs, const std::string& id) {
  for (const PublishedRun& run : runs)
    if (run.id == id) return std::get<Measured>(rules.read(run, runs)).scenario.job;
  MOTLEY_CHECK(false);
  return {};
}

}  // namespace

std::vector<PlannedJob> plan_published(const PublishedRules& rules, const std::vector<PublishedRun>& runs,
                                       const std::vector<RunOutcome>& outcomes, std::size_t evaluations) {
  const std::vector<LayoutChoice> jobs = layout_choices(runs, outcomes, 1);
  Progress progress("planning", static_cast<std::int64_t>(jobs.size()));
  std::vector<PlannedJob> list;
  for (const LayoutChoice& each : jobs) {
    const MeasuredLayout& layout = each.chosen();
    PlannedJob& planned = list.emplace_back();
    planned = {each.set, each.model, layout.ids.front(), each.chips, each.layouts.size(), layout.predicted_s,
               0,        0};
    Job job = read_job(rules, runs, layout.ids.front());
    job.strategy = {};
    job.fidelity.fold = true;
    try {
      const Plan best = plan(job, judge_in_pool(false), {.evaluations = evaluations});
      planned.planned_s = best.simulated_s;
      planned.bound_s = best.bound_s;
      planned.degrees = degrees_of(best.job.strategy);
    } catch (const Refusal& refusal) {
      if (refusal.exit_code() != Exit::infeasible) throw;
      planned.refused = refusal.message();
    }
    progress.show(static_cast<std::int64_t>(list.size()));
  }
  return list;
}

}  // namespace motley
