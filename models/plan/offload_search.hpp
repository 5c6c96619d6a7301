// Pipelines whose nodes keep the optimizer's state, and if they must, also what layers keep. Read next:
// models/plan/pipeline_search.hpp.
#pragma once

#include <functional>
#include <vector>

#include "models/plan/pipeline_search.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// Proposals have the lowest estimates first; each is estimated to be faster than the best of `others`, which offload
// nothing. There are none if some node has no memory to offload to.
// Assumes: copies of activations run beside the computes.
std::vector<Job> offloading_proposals(const Job& job, const PipelineForm& form,
                                      const std::vector<PlannedPipeline>& others,
                                      const std::function<bool()>& has_time);

}  // namespace motley
