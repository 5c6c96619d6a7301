#include "models/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "models/base/format.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/plan/moves.hpp"
#include "models/plan/pipeline_search.hpp"
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

class Planner {
 public:
  Planner(const Job& job, const Judge& judge, const PlanLimits& limits)
      : job_(job), judge_(judge), limits_(limits), pricer_(job) {}

  Plan run() {
    plan_.bound_s = work_bound_s(job_, pricer_);
    switch (limits_.policy) {
      case PlanPolicy::megatron:
        judge_uniform();
        break;
      case PlanPolicy::hethub:
        plan_.end = PlanEnd::all_judged;
        judge_proposals({.uses_all_groups = true, .most_chunks = 1});
        break;
      case PlanPolicy::optimal:
        judge_own();
        judge_proposals({});
        while (goes_on() && improve()) continue;
    }
    if (!stands()) refuse();
    return std::move(plan_);
  }

 private:
  bool stands() const { return plan_.simulated_s > 0; }

  bool goes_on() {
    if (plan_.judged >= limits_.evaluations)
      plan_.end = PlanEnd::evaluations;
    else if (!limits_.has_time())
      plan_.end = PlanEnd::time;
    else
      return true;
    return false;
  }

  // Bytes of parameters, gradients and optimizer state, once.
  double state_bytes() const {
    const Train& train = job_.train;
    const std::int64_t master = train.precision == Format::fp32 ? 0 : bytes_of(Format::fp32);
    const std::int64_t of_trained = bytes_of(train.gradients) + master + 2 * bytes_of(Format::fp32);
    return static_cast<double>(parameter_count(job_.transformer)) *
               static_cast<double>(bytes_of(train.precision)) +
           static_cast<double>(trained_parameter_count(job_.transformer)) * static_cast<double>(of_trained);
  }

  [[noreturn]] void refuse() const {
    double memory = 0;
    std::int64_t chips = 0;
    for (const NodeGroup& group : job_.cluster.groups) {
      chips += std::int64_t{group.nodes} * group.chips_per_node;
      memory += group.chip.memory_bytes.value * group.nodes * group.chips_per_node;
    }
    if (state_bytes() > memory)
      throw Refusal(
          Exit::infeasible, "no-plan", {},
          fmt::format("parameters, gradients and optimizer state of `{}` take {}, the {} chips of `{}` have "
                      "{} together: {} too little",
                      job_.transformer.name, format_bytes(state_bytes()), chips, job_.cluster.name,
                      format_bytes(memory), format_bytes(state_bytes() - memory)),
          "add chips, or keep states in the memory of the nodes (`offload`), which is not planned yet");
    throw Refusal(Exit::infeasible, "no-plan", {},
                  plan_.judged == 0 ? "no pipeline of equal replicas under 1f1b fits these chips"
                                    : fmt::format("of {} strategies that were simulated none stands: {}",
                                                  plan_.judged, last_refusal_),
                  "use chips with more memory, or more chips");
  }

  void judge_own() {
    if (job_.strategy.templates.empty()) return;
    judge_all({job_});
    if (stands()) plan_.own_s = plan_.simulated_s;
  }

  void judge_uniform() {
    const UniformSearch search = search_uniform(job_, pricer_, kProposed);
    plan_.explored = search.explored;
    plan_.end = PlanEnd::all_judged;
    judge_all(search.best);
  }

  void judge_proposals(const PipelineForm& form) {
    const PipelineSearch search = search_pipelines(job_, pricer_, kProposed, limits_.has_time, form);
    plan_.explored = search.explored;
    plan_.pruned = search.pruned;
    if (search.is_whole && !form.uses_all_groups) plan_.form_bound_s = search.bound_s;
    std::vector<Job> jobs;
    for (const PlannedPipeline& pipeline : search.best) {
      if (stands() && pipeline.estimate_s > kHopeless * plan_.simulated_s) break;
      jobs.push_back(with_pipeline(job_, pipeline));
    }
    judge_all(jobs);
  }

  // Judges all moves from the plan. Returns whether one of them made it faster.
  bool improve() {
    if (!stands()) return false;
    const double before_s = plan_.simulated_s;
    for (int kind = 0; kind < kMoveKinds; ++kind) {
      if (static_cast<MoveKind>(kind) == MoveKind::combination) continue;
      std::vector<Job> jobs;
      for (const Move& move : moves(plan_.job, static_cast<MoveKind>(kind)))
        if (std::optional<Job> moved = apply(move, plan_.job)) jobs.push_back(as_written(std::move(*moved)));
      judge_all(jobs);
    }
    return plan_.simulated_s < before_s;
  }

  // Judges jobs that were not judged before; the fastest becomes the plan.
  void judge_all(const std::vector<Job>& jobs) {
    std::vector<Job> together;
    for (std::size_t i = 0; i <= jobs.size(); ++i) {
      const bool is_new = i < jobs.size() && known_.insert(print(jobs[i].strategy)).second;
      if (is_new) together.push_back(jobs[i]);
      if (together.empty() || (i < jobs.size() && together.size() < kTogether)) continue;
      if (!goes_on()) return;
      together.resize(std::min(together.size(), limits_.evaluations - plan_.judged));
      const std::vector<Verdict> verdicts = judge_(together);
      for (std::size_t j = 0; j < verdicts.size(); ++j) take(std::move(together[j]), verdicts[j]);
      together.clear();
      if (limits_.progress) limits_.progress(plan_.judged, plan_.simulated_s, plan_.bound_s);
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
    } else if (!stands() || verdict.step_s < plan_.simulated_s) {
      plan_.job = std::move(job);
      plan_.simulated_s = verdict.step_s;
    }
  }

  const Job& job_;
  const Judge& judge_;
  const PlanLimits& limits_;
  StagePricer pricer_;
  std::set<std::string> known_;  // strategies that were judged
  std::string last_refusal_;
  Plan plan_;
};

}  // namespace

Plan plan(const Job& job, const Judge& judge, const PlanLimits& limits) {
  return Planner(job, judge, limits).run();
}

}  // namespace motley
