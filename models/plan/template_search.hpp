// Proposes strategies whose pipelines are unlike: fast chips have more micro-batches than slow ones, or other stages.
// Read next: models/plan/template_mix.hpp, planner.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"

namespace motley {

struct TemplateProposal {
  double estimate_s = 0;
  Job job;
};

// At most so many strategies with several templates, the lowest estimates first: mixes of pipelines on one group each,
// and of replicas of `pipelines` that stand on several. With zero 1, or with zero 3 if all have one stage.
// `has_time` is asked now and then; when it says no, there are fewer.
std::vector<TemplateProposal> template_proposals(const Job& job, StagePricer& pricer,
                                                 const std::vector<PlannedPipeline>& pipelines,
                                                 std::size_t most, const std::function<bool()>& has_time);

}  // namespace motley
