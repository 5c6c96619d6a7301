// Whether a framework runs a job, and the same job as that framework runs it: for plans that are made for one. Read
// next: export.hpp.
#pragma once

#include <optional>

#include "models/frameworks/framework.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// The job, if the target can say its strategy; else the job with what the target decides by itself: transfers that do
// not overlap under plain 1F1B, replicas that divide everything or nothing. Nothing: the target runs neither.
std::optional<Job> runnable_job(const Job& job, ExportTarget target);

}  // namespace motley
