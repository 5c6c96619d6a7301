#include "models/plan/proposals.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/plan/memory_repair.hpp"
#include "models/plan/offload_search.hpp"
#include "models/plan/part_search.hpp"
#include "models/plan/partial_recompute.hpp"
#include "models/plan/pins.hpp"
#include "models/plan/replica_search.hpp"
#include "models/plan/sharded_search.hpp"
#include "models/plan/template_search.hpp"

namespace motley {
namespace {

constexpr std::size_t kProposed = 48, kSharded = 24, kUnlike = 16, kInV = 12, kReplicated = 8;
// A pipeline whose estimate is so much above the best step is not judged. Assumes: estimates lie within 25 % of
// simulations (checked for 1F1B with unlike stages), so that twice as much misses none but by chance.
constexpr double kHopeless = 1.5;
// The same above the best estimate, which on slow networks is half of what a simulation says (seen over sockets).
constexpr double kHopelessEstimate = 2.5;

// Adds the job; and the same one with the exchanges of its experts overlapped, if it has any and they can be.
void add_with_expert_overlap(Job job, std::vector<Job>& jobs) {
  jobs.push_back(job);
  if (job.strategy.templates.front().stages.front().expert_parallel <= 1) return;
  job.strategy.overlap_experts = true;
  try {
    validate(job.transformer, job.train, job.strategy);
    jobs.push_back(std::move(job));
  } catch (const Refusal&) {  // the schedule does not allow it
    return;
  }
}

// Whether the pipeline has memory for the micro-batches in flight that zb_h2 has.
bool fits_more_in_flight(const PlannedPipeline& pipeline, StagePricer& pricer) {
  const std::size_t stages = pipeline.stages.size();
  for (std::size_t i = 0; i < stages; ++i) {
    const PlannedStage& stage = pipeline.stages[i];
    const std::optional<PartialStage> price = partial_stage(pipeline, stage, pricer);
    const double in_flight = std::min<double>(static_cast<double>(pipeline.micro_batches),
                                              2 * static_cast<double>(stages - i) - 1);
    const StagePosition position{in_flight, i == 0, i + 1 == stages, 1, in_flight, false};
    if (!price || !price->bytes.fits(stage.layers, recomputed_layers(pipeline, stage), position))
      return false;
  }
  return true;
}

// The pipelines, of which some are followed by themselves under zb_h2: with more micro-batches in flight, they wait
// less, for stages and for transfers.
std::vector<PlannedPipeline> with_more_in_flight(const std::vector<PlannedPipeline>& pipelines,
                                                 StagePricer& pricer) {
  constexpr int kFew = 6;
  int few = 0;
  std::vector<PlannedPipeline> all;
  for (const PlannedPipeline& pipeline : pipelines) {
    all.push_back(pipeline);
    if (few == kFew || pipeline.schedule != Schedule::zb_h1 || !fits_more_in_flight(pipeline, pricer))
      continue;
    all.push_back(pipeline);
    all.back().schedule = Schedule::zb_h2;
    ++few;
  }
  return all;
}

// What is estimated to take longer is not judged. `best`: the pipelines that closed forms call fastest; `step_s`: of
// the best strategy that was simulated, 0 if there is none.
double most_estimate_s(const std::vector<PlannedPipeline>& best, const Goal& goal, double step_s) {
  double least_s = std::numeric_limits<double>::infinity();
  if (!goal.is_shortest_step()) return least_s;
  for (const PlannedPipeline& pipeline : best)
    if (pipeline.schedule == Schedule::one_f_one_b) least_s = std::min(least_s, pipeline.estimate_s);
  return step_s > 0 ? std::min(kHopeless * step_s, kHopelessEstimate * least_s) : kHopelessEstimate * least_s;
}

// Adds jobs of another kind, some of them early, so that these are judged if there are few evaluations.
void add_some_early(std::vector<Job> others, std::vector<Job>& jobs) {
  const auto early = std::min(jobs.size(), kEarly), few = std::min(others.size(), kEarly);
  const auto middle = std::make_move_iterator(others.begin() + static_cast<std::ptrdiff_t>(few));
  jobs.insert(jobs.begin() + static_cast<std::ptrdiff_t>(early), std::make_move_iterator(others.begin()),
              middle);
  jobs.insert(jobs.end(), middle, std::make_move_iterator(others.end()));
}

// Jobs of pipelines that closed forms call fastest. A framework that runs them may not be able to say that stages
// recompute unlike.
void add_pipelines(const Job& job, StagePricer& pricer, const std::vector<PlannedPipeline>& best,
                   double most_s, const PlanLimits& limits, std::vector<Job>& jobs) {
  for (const PlannedPipeline& pipeline : with_more_in_flight(best, pricer)) {
    if (pipeline.estimate_s > most_s) continue;
    add_with_expert_overlap(with_pipeline(job, pipeline), jobs);
    const std::optional<PlannedPipeline> alike = limits.as_run ? recomputing_alike(pipeline) : std::nullopt;
    if (alike) add_with_expert_overlap(with_pipeline(job, *alike), jobs);
  }
}

std::vector<Job> unlike_proposals(const Job& job, StagePricer& pricer, const PipelineForm& form,
                                  const std::vector<PlannedPipeline>& pipelines, double most_s,
                                  const std::function<bool()>& has_time) {
  std::vector<Job> jobs;
  if (!form.has_unlike_templates) return jobs;
  for (TemplateProposal& proposal : template_proposals(job, pricer, pipelines, kUnlike, has_time))
    if (proposal.estimate_s <= most_s) jobs.push_back(std::move(proposal.job));
  return jobs;
}

const std::function<bool()>& has_search_time(const PlanLimits& limits) {
  return limits.has_search_time ? limits.has_search_time : limits.has_time;
}
const std::function<bool()>& has_first_time(const PlanLimits& limits) {
  return limits.has_first_time ? limits.has_first_time : has_search_time(limits);
}

}  // namespace

Job as_written(Job job, const Train& written) {
  for (PipelineTemplate& pipeline : job.strategy.templates) {
    const std::int64_t micro_batch = pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch;
    pipeline.micro_batch = micro_batch == written.micro_batch ? 0 : micro_batch;
  }
  job.train.micro_batch = written.micro_batch;
  return job;
}

// Their gradients are reduced beside what is left to compute: of nine such pipelines of shipped scenarios, each was
// 0.2 to 2 % faster for it.
std::vector<Job> v_proposals(const Job& job, const VSearchResult& search, double most_s) {
  std::vector<Job> jobs;
  for (const PlannedPipeline& pipeline : search.best) {
    if (pipeline.estimate_s >= most_s) continue;
    Job planned = with_pipeline(job, pipeline);
    planned.strategy.overlap_gradients = planned.strategy.zero > 0;
    add_with_expert_overlap(std::move(planned), jobs);
  }
  return jobs;
}

VSearchResult find_first_in_v(const Job& job, StagePricer& pricer, const PlanLimits& limits) {
  return search_v_pipelines(job, pricer, pinned(limits.form, limits.pins, job), kInV,
                            std::numeric_limits<double>::infinity(), has_first_time(limits),
                            has_search_time(limits));
}

Proposed propose_pipelines(const Job& job, StagePricer& pricer, const PlanLimits& limits, Plan& plan) {
  Proposed proposed;
  proposed.form = pinned(limits.form, limits.pins, job);
  PipelineSearch search = search_pipelines(job, pricer, kProposed, has_search_time(limits), proposed.form);
  plan.explored += search.explored;
  plan.pruned += search.pruned;
  if (!search.best.empty() && std::isfinite(search.bound_s)) plan.form_bound_s = search.bound_s;
  proposed.pipelines = std::move(search.best);
  if (!limits.goal.is_shortest_step())
    for (const PlannedPipeline& pipeline :
         search_parts(job, pricer, limits.goal, kProposed, has_search_time(limits), proposed.form))
      proposed.jobs.push_back(with_pipeline(job, pipeline));
  proposed.most_s = most_estimate_s(proposed.pipelines, limits.goal, plan.simulated_s);
  add_pipelines(job, pricer, proposed.pipelines, proposed.most_s, limits, proposed.jobs);
  return proposed;
}

void add_other_kinds(const Job& job, StagePricer& pricer, const PlanLimits& limits, Proposed& proposed) {
  if (!proposed.in_v.is_whole)
    proposed.in_v = search_v_pipelines(job, pricer, proposed.form, kInV, proposed.most_s, limits.has_time);
  const std::function<bool()>& has_time = limits.has_time;
  const PipelineForm& form = proposed.form;
  const double most_s = proposed.most_s;
  std::vector<Job>& jobs = proposed.jobs;
  add_some_early(sharded_proposals(job, pricer, kSharded, most_s), jobs);
  add_some_early(offloading_proposals(job, form, proposed.pipelines, has_time), jobs);
  add_some_early(unlike_proposals(job, pricer, form, proposed.pipelines, most_s, has_time), jobs);
  add_some_early(v_proposals(job, proposed.in_v, most_s), jobs);
  proposed.has_all_kinds = true;
}

std::vector<Job> replicated_unlike(const Job& job, StagePricer& pricer,
                                   const std::vector<PlannedPipeline>& pipelines,
                                   const std::function<bool()>& has_time) {
  std::vector<Job> jobs = replica_proposals(job, pricer, pipelines, kReplicated, has_time);
  for (Job& each : jobs) each = as_written(std::move(each), job.train);
  return jobs;
}

std::vector<Job> with_memory(const Job& job, const StagePricer& pricer, const PlanLimits& limits,
                             const Plan& plan, Proposed& proposed,
                             const std::function<bool(const Job& job)>& is_refused) {
  constexpr std::size_t kTried = 8;
  if (std::exchange(proposed.is_tried_with_memory, true)) return {};
  const double best_s = plan.simulated_s > 0 ? plan.simulated_s : std::numeric_limits<double>::infinity();
  std::vector<std::pair<double, Job>> refused;
  const auto note = [&](double estimate_s, const Job& each) {
    if (estimate_s < best_s && is_refused(each)) refused.emplace_back(estimate_s, each);
  };
  for (const PlannedPipeline& pipeline : proposed.pipelines)
    note(pipeline.estimate_s, with_pipeline(job, pipeline));
  for (const PlannedPipeline& pipeline : proposed.in_v.best)
    for (const Job& each : v_proposals(job, {{pipeline}}, best_s)) note(pipeline.estimate_s, each);
  std::stable_sort(refused.begin(), refused.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (refused.size() > kTried) refused.resize(kTried);
  std::vector<Job> jobs;
  for (const auto& [estimate_s, each] : refused) {
    if (!limits.has_time()) break;
    if (std::optional<Job> fits = with_more_recomputed(each, pricer.recomputes()))
      jobs.push_back(std::move(*fits));
  }
  return jobs;
}

}  // namespace motley
