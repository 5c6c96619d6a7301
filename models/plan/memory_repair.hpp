// Closed forms count memory a little too low for some pipelines: their jobs then lack up to a few per cent of it, and
// fit with a little more recomputed. Read next: models/plan/proposals.hpp.
#pragma once

#include <optional>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

// The job with as few more layers recomputed as fit, in the stages whose chips lack memory. `recomputes`: what they may
// recompute, as planned_recomputes() lists it. Nothing: the job fits, lacks much, or fits so neither; or it is refused
// for something else.
std::optional<Job> with_more_recomputed(const Job& job, const std::vector<Recompute>& recomputes);

}  // namespace motley
