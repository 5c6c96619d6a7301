// The pins of a plan (models/scenario/plan_request.hpp) in the search, and a check of them that shares nothing with it.
// Read next: models/plan/pipeline_search.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/plan/pipeline_search.hpp"
#include "models/program/program.hpp"
#include "models/scenario/job.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

bool is_pinned(const PlanPins& pins);

// The form of pipelines that may keep the pins.
PipelineForm pinned(PipelineForm form, const PlanPins& pins, const Job& job);

// Finds a pin that the job does not keep once it is compiled: it looks at the ranks' chips, at the ranks of each group
// that communicates and at the neighbours of each rank. Nothing: all are kept. The text names the pin: "pin `dp: 16`:
// the plan has 8 replicas".
std::optional<std::string> find_broken_pin(const PlanPins& pins, const Job& job, const Program& program);

}  // namespace motley
