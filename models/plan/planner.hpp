// Chooses the strategy of a job. Closed forms propose pipelines (pipeline_search.hpp), a simulation judges them, and
// the best one is improved by the moves that people know from `motley explain` (moves.hpp) until none makes it faster.
// What a bound rules out is not simulated.
// Beside the plan stands a bound that no strategy can pass. There are no clocks and no simulator here: both are handed
// in. Read next: models/plan/work_bound.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/plan/goal.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/scenario/job.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

// Compiles, checks and simulates jobs, and returns the verdicts in their order.
using Judge = std::function<std::vector<Verdict>(const std::vector<Job>& jobs)>;
// The same, but a job whose step takes `enough_s` or longer need not be simulated: its verdict may be a bound of at
// least `enough_s`.
using JudgeBelow = std::function<std::vector<Verdict>(const std::vector<Job>& jobs, double enough_s)>;

// The result of one of the forms that a policy tries.
struct VariantResult {
  std::string what;
  double step_s = 0;  // the fastest; 0: none that was tried fits
};

enum class PlanEnd : std::uint8_t {
  no_move_helps,  // every move from the plan was judged, and none makes it better
  all_judged,     // every proposal of a policy was judged
  evaluations,    // as many jobs were judged as were allowed
  time,
};

struct Plan {
  Job job;
  double simulated_s = 0;
  double bound_s = 0;  // no strategy of this job is faster
  Verdict verdict;     // of the job, with its bill if the goal needs it
  Goal goal;
  double value_bound = 0;  // no strategy of this job that meets the targets has a lower value of the goal
  // No pipeline of the form that was searched (equal replicas, 1F1B, zero 1, gradients reduced after the last backward,
  // nothing offloaded, experts weighed as planned_expert_weights() says; any chips in any order, any part of a stage
  // recomputed) is faster. Moves leave that form, so the plan may be faster. Nothing: no such pipeline fits.
  std::optional<double> form_bound_s;
  std::optional<double> own_s;            // the step under the job's own strategy, where it has one that fits
  std::optional<Verdict> own;             // the verdict on it
  std::int64_t explored = 0, pruned = 0;  // pipelines by closed forms
  std::size_t judged = 0, refused = 0;    // jobs; those of them that do not stand
  std::size_t bounded = 0;                // jobs that were judged by a bound alone, and not simulated
  std::vector<VariantResult> variants = {};
  std::vector<std::string> notes = {};  // what the policy measured and chose on the way
  PlanEnd end = PlanEnd::no_move_helps;
  double value() const { return goal.value(verdict); }
  double gap() const { return (value() - value_bound) / value(); }
};

struct PlanLimits {
  PlanPolicy policy = PlanPolicy::optimal;
  std::size_t evaluations = 400;  // jobs that are judged at most
  // Jobs that are judged before the next decision, whatever the number of processors: so that the same plan comes out.
  std::size_t together = 8;
  std::function<bool()> has_time = [] { return true; };  // asked between judgements
  // Asked while closed forms look for pipelines, so that time is left to judge these. Empty: `has_time`.
  std::function<bool()> has_search_time = {};
  // Asked while the very first strategies are looked for, once there is one. Empty: `has_search_time`.
  std::function<bool()> has_first_time = {};
  // Judges jobs that are of no use beyond some time, where the goal is the shortest step; the plan is the same. Empty:
  // the Judge does.
  JudgeBelow judge_below = {};
  // Told the best value of the goal until then, 0 while none meets the targets, and its bound: the gap never grows.
  std::function<void(std::size_t judged, double best, double bound)> progress = {};
  Goal goal = {};
  PlanPins pins = {};
  // The job as whoever runs it would run it; nothing: they cannot. Empty: every job runs as it is.
  std::function<std::optional<Job>(const Job& job)> as_run = {};
  PipelineForm form = {};             // pipelines that they can run, as far as a form says it
  std::vector<Ablation> ablate = {};  // without `sockets`, which is an edit of the cluster
  // Plans that `optimal` starts with. Empty: it makes those of all policies itself.
  std::vector<Plan> starts = {};
  bool certifies = true;  // says why there is no plan, which takes its time
  bool suggests = false;  // a job without a plan is changed until it has one, to say the smallest change
};

// Plans a job by one policy, which is not `all`. Under `optimal`, a strategy that the job already has is the first to
// be judged. The plan's job may have another transport than the cluster says (`holmes`, or `sockets` for frameworks
// that know no groups of NICs). Throws Refusal("no-plan") if no strategy that was tried fits.
Plan plan(const Job& job, const Judge& judge, const PlanLimits& limits);

}  // namespace motley
