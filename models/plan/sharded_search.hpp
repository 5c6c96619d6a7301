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
// None is estimated to take more than `most_s`.
std::vector<Job> sharded_proposals(const Job& job, StagePricer& pricer, std::size_t most, double most_s);

// Seconds in which a rank of the group gathers and reduces, for a micro-batch, its parts of all parameters, which all
// replicas of one stage on all chips divide. Assumes: NICs are shared evenly.
double sharded_transfers_s(const Job& job, int group, std::int64_t tensor_parallel);

// Whether a chip has memory for what a micro-batch in flight keeps in all layers.
bool holds_micro_batch(const Job& job, StagePricer& pricer, const StageWay& way, std::int64_t micro_batch,
                       std::int64_t replicas);

}  // namespace motley
