// Pipelines whose stages are replicated unlike: moves from pipelines of equal replicas, judged by a closed form before
// they are simulated. Read next: models/plan/replica_edits.hpp, models/plan/planner.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "models/plan/pipeline_search.hpp"

namespace motley {

// Seconds of a step of the job's only pipeline, whose stages may be replicated unlike: m times the longest stage, plus
// the others, plus gradients; split backwards fill what others wait. Infinite: a stage is impossible. Nothing: it is
// not told which chips a stage has, or closed forms do not know how it is run.
std::optional<double> replicated_step_s(const Job& job, StagePricer& pricer);

// The `most` jobs with the lowest estimates that are one move away from the first of the pipelines; none is estimated
// to take much longer than the best of all pipelines.
std::vector<Job> replica_proposals(const Job& job, StagePricer& pricer,
                                   const std::vector<PlannedPipeline>& pipelines, std::size_t most,
                                   const std::function<bool()>& has_time);

// Leaves those that are not estimated to take much longer than the job that they are moves from.
void keep_near(std::vector<Job>& moved, const Job& from, StagePricer& pricer);

}  // namespace motley
