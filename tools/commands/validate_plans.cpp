// Jobs are planned one after the other; the simulations of one plan run in the pool.
#include "tools/commands/validate_plans.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "models/base/refusal.hpp"
#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
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

// Bytes that the fullest chip lacks; 0: all have enough.
double short_bytes(const Job& job) {
  std::int64_t most = 0;
  for (const StageMemory& stage : memory_by_stage(compile(job), job.cluster, job.train.fragmentation))
    most = std::max(most, stage.peak - stage.capacity);
  return static_cast<double>(most);
}

// A published layout, and what its fullest chip lacks.
struct Opponent {
  const MeasuredLayout* layout = nullptr;
  Job job;
  double short_bytes = 0;
};

// The layout that is predicted fastest of those that fit; the fastest of all if none does.
Opponent opponent(const LayoutChoice& choice, const PublishedRules& rules,
                  const std::vector<PublishedRun>& runs) {
  std::optional<Opponent> first;
  for (const MeasuredLayout& layout : choice.layouts) {
    Job job = read_job(rules, runs, layout.ids.front());
    const double bytes = short_bytes(job);
    if (bytes <= 0) return {&layout, std::move(job), 0};
    if (!first) first = {&layout, std::move(job), bytes};
  }
  return *first;
}

}  // namespace

std::vector<PlannedJob> plan_published(const PublishedRules& rules, const std::vector<PublishedRun>& runs,
                                       const std::vector<RunOutcome>& outcomes,
                                       const PlannedJobsOptions& options) {
  const std::vector<LayoutChoice> jobs = layout_choices(runs, outcomes, 1);
  Progress progress("planning", static_cast<std::int64_t>(jobs.size()));
  std::vector<PlannedJob> list;
  for (const LayoutChoice& each : jobs) {
    auto [layout, job, bytes] = opponent(each, rules, runs);
    PlannedJob& planned = list.emplace_back();
    planned.set = each.set;
    planned.model = each.model;
    planned.run = layout->ids.front();
    planned.chips = each.chips;
    planned.layouts = each.layouts.size();
    planned.published_s = layout->predicted_s;
    planned.short_bytes = bytes;
    job.strategy = {};
    job.fidelity.fold = true;
    bool reached = false;
    PlanLimits limits;
    limits.evaluations = options.evaluations;
    if (options.until_no_slower) {
      limits.has_time = [&] { return !reached; };
      limits.progress = [&](std::size_t, double best, double) {
        reached = reached || (best > 0 && best <= planned.published_s);
      };
    }
    try {
      const Plan best = plan(job, judge_in_pool(false), limits);
      planned.ended_early = best.end == PlanEnd::time;
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
