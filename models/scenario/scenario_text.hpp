// A job as the text of a scenario, which read_scenario() reads back equal. Read next: models/scenario/scenario.hpp.
#pragma once

#include <string>

#include "models/scenario/job.hpp"

namespace motley {

// One YAML document with the whole model and cluster written inline, so that it means the same in every folder. The
// figures of the chips' software are those of the job: `software: none` lays nothing over them.
std::string print(const Job& job);

}  // namespace motley
