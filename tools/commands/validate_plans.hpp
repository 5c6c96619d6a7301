// Plans of published jobs, for `motley validate --plans`. Read next: models/published/planned_jobs.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/published/planned_jobs.hpp"
#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"

namespace motley {

// Plans each job that these runs measured, on its chips and with its software, without its layouts being shown to the
// planner. `outcomes` are those of `runs`, in their order. At most `evaluations` strategies of a job are simulated.
std::vector<PlannedJob> plan_published(const PublishedRules& rules, const std::vector<PublishedRun>& runs,
                                       const std::vector<RunOutcome>& outcomes, std::size_t evaluations);

}  // namespace motley
