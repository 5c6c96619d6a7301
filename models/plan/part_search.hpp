// Pipelines on parts of a cluster: on some of its groups, and on some of their nodes. A plan for little rent or energy
// leaves chips out, which closed forms for the shortest step never do. Read next: models/plan/pipeline_search.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "models/plan/goal.hpp"
#include "models/plan/pipeline_search.hpp"

namespace motley {

// The `most` pipelines whose estimates are best for the goal, the best first. Every set of groups is tried (of more
// than four groups: each alone, each pair, and all) with all nodes, with half of each group's nodes, a quarter, and so
// on.
std::vector<PlannedPipeline> search_parts(const Job& job, StagePricer& pricer, const Goal& goal,
                                          std::size_t most, const std::function<bool()>& has_time,
                                          const PipelineForm& form);

// What the closed forms call the verdict on a pipeline. Assumes: chips compute for as long as their stage's passes
// take, and wait for the rest of the step.
Verdict estimated(const Job& job, StagePricer& pricer, const PlannedPipeline& pipeline);

}  // namespace motley
