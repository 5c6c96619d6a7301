// The edits after which some stages of a pipeline are replicated more often than others: on the chips that they have,
// cut less or more; on chips that are idle; or two neighbours as one stage with the chips of both.
#pragma once

#include <vector>

#include "models/plan/edits.hpp"

namespace motley {

// Each entry holds the edits of one change. None: the job has several templates, stages of several chunks, one stage,
// stages without layers, or the timetable of a file.
std::vector<std::vector<Edit>> replica_edits(const Job& job);

}  // namespace motley
