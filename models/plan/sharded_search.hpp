// Finds strategies of one stage on all chips, of which replicas divide parameters, gradients and optimizer (FSDP). Read
// next: models/plan/stage_price.hpp, planner.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// The `most` jobs whose closed forms are lowest, the best first; those whose activations alone need more memory than a
// chip has are not among them. Every micro-batch that divides the batch is tried: the larger, the fewer gathers.
std::vector<Job> sharded_proposals(const Job& job, StagePricer& pricer, std::size_t most);

}  // namespace motley
