#include "models/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "models/base/format.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/certificate.hpp"
#include "models/plan/goal_bound.hpp"
#include "models/plan/moves.hpp"
#include "models/plan/part_search.hpp"
#include "models/plan/pins.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/target_refusal.hpp"
#include "models/plan/uniform_search.hpp"
#include "models/plan/work_bound.hpp"

namespace motley {
namespace {

// Jobs that are judged before the next decision, whatever the number of processors: so that the same plan comes out.
constexpr std::size_t kTogether = 8;
constexpr std::size_t kProposed = 48;
// A pipeline whose estimate is so much above the best step is not judged. Assumes: estimates lie within 25 % of
// simulations (checked for 1F1B with unlike stages), so that twice as much misses none but by chance.
constexpr double kHopeless = 1.5;

constexpr std::size_t kStarts = 3;
// The kinds of moves, those first that change most. Combinations save memory; a plan has what it needs.
constexpr std::array kImproving = {
    MoveKind::degrees,           MoveKind::experts,          MoveKind::micro_batch, MoveKind::schedule,
    MoveKind::virtual_stages,    MoveKind::expert_overlap,   MoveKind::zero,        MoveKind::sharding,
    MoveKind::recompute,         MoveKind::recompute_layers, MoveKind::overlap,     MoveKind::resharding,
    MoveKind::sequence_parallel, MoveKind::offload,          MoveKind::layers};
static_assert(kImproving.size() == kMoveKinds - 1);

struct Candidate {
  Job job;
  Verdict verdict;
};

// The degrees, the groups and the number of chunks of a strategy's stages.
std::string shape_of(const Strategy& strategy) {
  std::string shape(name_of(strategy.schedule));
  for (const PipelineTemplate& pipeline : strategy.templates) {
    shape += fmt::format("; {} x {}", pipeline.replicas, pipeline.context_parallel);
    for (const Stage& stage : pipeline.stages)
      shape += fmt::format(" {}.{}.{}:{}", stage.tensor_parallel, stage.expert_parallel, stage.more.size(),
                           fmt::join(stage.on, "+"));
  }
  return shape;
}

class Planner {
 public:
  Planner(const Job& job, const Judge& judge, const PlanLimits& limits)
      : job_(job), judge_(judge), limits_(limits), goal_(limits.goal), pricer_(job) {}

  Plan run() {
    plan_.bound_s = work_bound_s(job_, pricer_);
    plan_.goal = goal_;
    plan_.value_bound =
        goal_.is_shortest_step() ? plan_.bound_s : GoalBounds(job_, pricer_).least_value(goal_);
    switch (limits_.policy) {
      case PlanPolicy::megatron:
        judge_uniform();
        break;
      case PlanPolicy::hethub:
        plan_.end = PlanEnd::all_judged;
        judge_proposals(
            {.uses_all_groups = true, .most_chunks = 1, .cuts_sequences = false, .divides_experts = false});
        break;
      case PlanPolicy::optimal:
        judge_own();
        judge_proposals({});
        judge_all(sharded_proposals());
        if (!stands()) judge_all(sparing_jobs(job_, limits_.pins));
        for (Candidate& start : starts()) improve(std::move(start));
    }
    if (!stands()) refuse_no_plan(job_, pricer_, judge_, limits_, plan_.judged, last_refusal_);
    if (!goal_.is_met(plan_.verdict)) refuse_target(plan_);
    return std::move(plan_);
  }

 private:
  bool stands() const { return plan_.simulated_s > 0; }

  bool goes_on() {
    if (plan_.judged >= limits_.evaluations)
      plan_.end = PlanEnd::evaluations;
    else if (stands() && !limits_.has_time())  // a late plan is better than none
      plan_.end = PlanEnd::time;
    else
      return true;
    return false;
  }

  void judge_own() {
    if (job_.strategy.templates.empty()) return;
    judge_all({job_});
    if (!stands()) return;
    plan_.own_s = plan_.simulated_s;
    plan_.own = plan_.verdict;
  }

  void judge_uniform() {
    const UniformSearch search = search_uniform(job_, pricer_, kProposed);
    plan_.explored = search.explored;
    plan_.end = PlanEnd::all_judged;
    judge_all(search.best);
  }

  // One stage on all chips, of which replicas divide everything (FSDP).
  std::vector<Job> sharded_proposals() const {
    std::vector<Job> jobs;
    const std::int64_t chips = job_.cluster.chip_count();
    std::int64_t node = chips;
    for (const NodeGroup& group : job_.cluster.groups)
      node = std::min<std::int64_t>(node, group.chips_per_node);
    for (std::int64_t tensor = 1; tensor <= node; tensor *= 2)
      for (const std::int64_t micro_batch : {1, 2, 4})
        for (const Recompute& recompute : {Recompute::none, Recompute::full})
          if (std::optional<Job> job = sharded(chips / tensor, tensor, micro_batch, recompute))
            jobs.push_back(std::move(*job));
    return jobs;
  }

  std::optional<Job> sharded(std::int64_t replicas, std::int64_t tensor, std::int64_t micro_batch,
                             const Recompute& recompute) const {
    Job job = job_;
    Train train = job.train;
    train.micro_batch = micro_batch;
    try {
      Strategy& strategy = job.strategy = expand(job.transformer, train, tensor, 1, replicas);
      if (micro_batch != job.train.micro_batch) strategy.templates[0].micro_batch = micro_batch;
      strategy.recompute = recompute;
      strategy.sequence_parallel = tensor > 1;
      strategy.zero = replicas > 1 ? 3 : 0;
      strategy.overlap_gradients = replicas > 1;
      validate(job.transformer, job.train, strategy);
    } catch (const Refusal&) {
      return std::nullopt;
    }
    return job;
  }

  void judge_proposals(const PipelineForm& wanted) {
    const PipelineForm form = pinned(wanted, limits_.pins, job_);
    const PipelineSearch search = search_pipelines(job_, pricer_, kProposed, limits_.has_time, form);
    plan_.explored = search.explored;
    plan_.pruned = search.pruned;
    if (search.is_whole && !form.uses_all_groups && std::isfinite(search.bound_s))
      plan_.form_bound_s = search.bound_s;
    std::vector<Job> jobs;
    if (!goal_.is_shortest_step())
      for (const PlannedPipeline& pipeline :
           search_parts(job_, pricer_, goal_, kProposed, limits_.has_time, form))
        jobs.push_back(with_pipeline(job_, pipeline));
    for (const PlannedPipeline& pipeline : search.best) {
      if (goal_.is_shortest_step() && stands() && pipeline.estimate_s > kHopeless * plan_.simulated_s) break;
      jobs.push_back(with_pipeline(job_, pipeline));
    }
    judge_all(jobs);
  }

  // Where moves begin: at the best jobs that were judged, of which no two have the same degrees, groups and number
  // of chunks.
  std::vector<Candidate> starts() {
    std::stable_sort(judged_.begin(), judged_.end(), [&](const Candidate& a, const Candidate& b) {
      return goal_.is_better(a.verdict, b.verdict);
    });
    std::vector<Candidate> list;
    std::set<std::string> shapes;
    for (Candidate& each : judged_)
      if (list.size() < kStarts && shapes.insert(shape_of(each.job.strategy)).second)
        list.push_back(std::move(each));
    judged_.clear();
    return list;
  }

  // Judges all moves from a job, and goes on from the best, until none is better.
  void improve(Candidate now) {
    for (bool is_improved = true; is_improved;) {
      is_improved = false;
      for (const MoveKind kind : kImproving) {
        if (!goes_on()) return;
        std::vector<Job> jobs;
        for (const Move& move : moves(now.job, kind))
          if (std::optional<Job> moved = apply(move, now.job)) jobs.push_back(as_written(std::move(*moved)));
        judged_.clear();
        judge_all(jobs);
        for (Candidate& each : judged_)
          if (goal_.is_better(each.verdict, now.verdict)) {
            now = std::move(each);
            is_improved = true;
          }
      }
    }
  }

  // Judges jobs that were not judged before; the best of all becomes the plan.
  void judge_all(const std::vector<Job>& jobs) {
    std::vector<Job> together;
    for (std::size_t i = 0; i <= jobs.size(); ++i) {
      if (i < jobs.size())
        if (std::optional<Job> job = limits_.as_run ? limits_.as_run(jobs[i]) : jobs[i])
          if (keeps_pins(*job) && known_.insert(print(job->strategy)).second)
            together.push_back(std::move(*job));
      if (together.empty() || (i < jobs.size() && together.size() < kTogether)) continue;
      if (!goes_on()) return;
      together.resize(std::min(together.size(), limits_.evaluations - plan_.judged));
      const std::vector<Verdict> verdicts = judge_(together);
      for (std::size_t j = 0; j < verdicts.size(); ++j) take(std::move(together[j]), verdicts[j]);
      together.clear();
      if (!limits_.progress) continue;
      const bool is_met = stands() && goal_.is_met(plan_.verdict);
      limits_.progress(plan_.judged, is_met ? plan_.value() : 0, plan_.value_bound);
    }
  }

  // Whether the job keeps the pins once it is compiled; a job that does not compile is judged, and refused.
  bool keeps_pins(const Job& job) {
    if (!is_pinned(limits_.pins)) return true;
    try {
      const std::optional<std::string> broken = find_broken_pin(limits_.pins, job, compile(job));
      if (broken) last_refusal_ = *broken;
      return !broken;
    } catch (const Refusal&) {
      return true;
    }
  }

  // The same job with the training shape as the scenario has it: micro-batches stand in the strategy.
  Job as_written(Job job) const {
    for (PipelineTemplate& pipeline : job.strategy.templates) {
      const std::int64_t micro_batch =
          pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch;
      pipeline.micro_batch = micro_batch == job_.train.micro_batch ? 0 : micro_batch;
    }
    job.train.micro_batch = job_.train.micro_batch;
    return job;
  }

  void take(Job job, const Verdict& verdict) {
    ++plan_.judged;
    if (!verdict.stands()) {
      ++plan_.refused;
      last_refusal_ = verdict.refused;
      return;
    }
    if (!stands() || goal_.is_better(verdict, plan_.verdict)) {
      plan_.job = job;
      plan_.simulated_s = verdict.step_s;
      plan_.verdict = verdict;
    }
    judged_.push_back({std::move(job), verdict});
  }

  const Job& job_;
  const Judge& judge_;
  const PlanLimits& limits_;
  const Goal& goal_;
  StagePricer pricer_;
  std::set<std::string> known_;    // strategies that were judged
  std::vector<Candidate> judged_;  // those of the last proposals, or moves, that stand
  std::string last_refusal_;
  Plan plan_;
};

}  // namespace

Plan plan(const Job& job, const Judge& judge, const PlanLimits& limits) {
  return Planner(job, judge, limits).run();
}

}  // namespace motley
