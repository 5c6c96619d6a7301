// Plans of published jobs, for `motley validate --plans`. Read next: models/published/planned_jobs.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/published/planned_jobs.hpp"
#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"

namespace motley {

struct PlannedJobsOptions {
  std::size_t evaluations = 400;  // strategies of a job that are simulated at most
  // A search ends once its plan is no slower than the published layout: it may have gone on to a faster one.
  bool until_no_slower = false;
};

// Plans each job that these runs measured, on its chips and with its software, without its layouts being shown to the
// planner. `outcomes` are those of `runs`, in their order.
std::vector<PlannedJob> plan_published(const PublishedRules& rules, const std::vector<PublishedRun>& runs,
                                       const std::vector<RunOutcome>& outcomes,
                                       const PlannedJobsOptions& options);

}  // namespace motley
