// Pipelines whose chunks lie in a V, under zb-v and dualpipe-v: each stage has one chunk on the way down and one on the
// way up. Their steps are those of the schedules' own timetables, with the times of each chunk. Read next:
// models/plan/pipeline_search.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "models/plan/pipeline_search.hpp"

namespace motley {

struct VSearchResult {
  std::vector<PlannedPipeline> best;  // the lowest estimates first
  bool is_whole = true;               // false: the search was ended early
};

// The `most` of them with the lowest estimates; none is estimated to take `most_s` or more. The stages of faster chips
// hold more layers; which group's chips hold both ends of the model is chosen, too.
// `has_time` is asked now and then; when it says no, the search ends with what it has. While it has nothing,
// `has_time_for_any` is asked instead; empty: `has_time`.
// Assumes: split backwards keep beyond micro-batches in flight what they keep under zb-h1.
VSearchResult search_v_pipelines(const Job& job, StagePricer& pricer, const PipelineForm& form,
                                 std::size_t most, double most_s, const std::function<bool()>& has_time,
                                 const std::function<bool()>& has_time_for_any = {});

}  // namespace motley
