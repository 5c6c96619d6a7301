// The strategies that a plan begins with: pipelines that closed forms call fastest, and strategies of other kinds. Read
// next: models/plan/planner.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "models/plan/pipeline_search.hpp"
#include "models/plan/planner.hpp"
#include "models/plan/stage_price.hpp"
#include "models/plan/v_search.hpp"

namespace motley {

inline constexpr std::size_t kEarly = 4;  // proposed jobs before some of another kind; as many of that kind

// What closed forms propose.
struct Proposed {
  PipelineForm form;
  std::vector<PlannedPipeline> pipelines;
  double most_s = 0;      // what is estimated to take longer is not judged
  std::vector<Job> jobs;  // in the order in which they are judged
  VSearchResult in_v;     // what there was time to look for before all else
  bool has_all_kinds = false;
  bool is_tried_with_memory = false;
};

// What there is time to find of pipelines in a V before all else.
VSearchResult find_first_in_v(const Job& job, StagePricer& pricer, const PlanLimits& limits);

// Jobs of pipelines whose chunks lie in a V, and are estimated to take less than `most_s`.
std::vector<Job> v_proposals(const Job& job, const VSearchResult& search, double most_s);

// Pipelines with equal replicas. `plan`: counts what is looked at, and has the best strategy that was simulated.
Proposed propose_pipelines(const Job& job, StagePricer& pricer, const PlanLimits& limits, Plan& plan);

// Adds strategies of other kinds, some of them early, where they are not there.
void add_other_kinds(const Job& job, StagePricer& pricer, const PlanLimits& limits, Proposed& proposed);

// Stages that are replicated unlike.
std::vector<Job> replicated_unlike(const Job& job, StagePricer& pricer,
                                   const std::vector<PlannedPipeline>& pipelines,
                                   const std::function<bool()>& has_time);

// Jobs of pipelines that were refused, though closed forms say that they fit and are faster than the plan until now:
// with a little more recomputed. The lowest estimates first. None are left the second time.
std::vector<Job> with_memory(const Job& job, const StagePricer& pricer, const PlanLimits& limits,
                             const Plan& plan, Proposed& proposed,
                             const std::function<bool(const Job& job)>& is_refused);

// The same job with the training shape as the scenario has it: micro-batches stand in the strategy.
Job as_written(Job job, const Train& written);

}  // namespace motley
