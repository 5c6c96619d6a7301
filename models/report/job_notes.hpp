// What a person should know of a job besides its figures: what was taken for granted, and what may be a slip. Read
// next: models/report/report.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// Remarks on the cluster's groups, chips without work, sequences longer than the model was made for; a sentence each.
std::vector<std::string> job_notes(const Job& job, const Program& program);

}  // namespace motley
