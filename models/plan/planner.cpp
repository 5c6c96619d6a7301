#include "models/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "models/base/format.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/ablation.hpp"
#include "models/plan/certificate.hpp"
#include "models/plan/goal_bound.hpp"
#include "models/plan/moves.hpp"
#include "models/plan/pins.hpp"
#include "models/plan/policy.hpp"
#include "models/plan/proposals.hpp"
#include "models/plan/replica_search.hpp"
#include "models/plan/target_refusal.hpp"
#include "models/plan/work_bound.hpp"

namespace motley {
namespace {

constexpr std::size_t kStarts = 3;
// A bound must pass a simulated step by this much to rule a job out, so that rounding does not. See
// sim/recurrence/recurrence.hpp for how exactly overlapping steps are alike.
constexpr double kPassed = 1 + 1e-5;
// The kinds of moves, those first that change most. Combinations save memory; a plan has what it needs.
constexpr std::array kImproving = {
    MoveKind::degrees,           MoveKind::experts,          MoveKind::micro_batch, MoveKind::schedule,
    MoveKind::virtual_stages,    MoveKind::expert_overlap,   MoveKind::zero,        MoveKind::sharding,
    MoveKind::recompute,         MoveKind::recompute_layers, MoveKind::overlap,     MoveKind::resharding,
    MoveKind::sequence_parallel, MoveKind::offload,          MoveKind::layers,      MoveKind::replicas};
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

// What tells one judged job from another.
std::string key_of(const Job& job) {
  return print(job.strategy) + std::string(name_of(job.cluster.transport));
}

// Where moves begin: at the best jobs that were judged, of which no two have the same degrees, groups and number
// of chunks.
std::vector<Candidate> starts(std::vector<Candidate> judged, const Goal& goal) {
  std::stable_sort(judged.begin(), judged.end(), [&](const Candidate& a, const Candidate& b) {
    return goal.is_better(a.verdict, b.verdict);
  });
  std::vector<Candidate> list;
  std::set<std::string> shapes;
  for (Candidate& each : judged)
    if (list.size() < kStarts && shapes.insert(shape_of(each.job.strategy)).second)
      list.push_back(std::move(each));
  return list;
}

// A job that takes longer is none of starts(): that of the last of them. Infinite: there are fewer.
double longest_start_s(const std::vector<Candidate>& judged) {
  std::map<std::string, double> shapes;
  for (const Candidate& each : judged) {
    const auto [shape, is_new] = shapes.try_emplace(shape_of(each.job.strategy), each.verdict.step_s);
    shape->second = std::min(shape->second, each.verdict.step_s);
  }
  std::vector<double> steps;
  for (const auto& [shape, step_s] : shapes) steps.push_back(step_s);
  std::sort(steps.begin(), steps.end());
  return steps.size() < kStarts ? Goal::kNone : steps[kStarts - 1];
}

// A job is of use if it may become the plan, one of starts(), or what moves go on from: below `useful_s`.
std::vector<Verdict> judge_useful(const std::vector<Job>& jobs, const Judge& judge, const PlanLimits& limits,
                                  double useful_s) {
  const bool bounds = limits.policy == PlanPolicy::optimal && limits.goal.is_shortest_step();
  return bounds && limits.judge_below ? limits.judge_below(jobs, kPassed * useful_s) : judge(jobs);
}

// The pin that the job does not keep once it is compiled. Nothing: it keeps all, or does not compile: it is judged, and
// refused.
std::optional<std::string> find_pin_broken_by(const Job& job, const PlanPins& pins) {
  if (!is_pinned(pins)) return std::nullopt;
  try {
    return find_broken_pin(pins, job, compile(job));
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

std::vector<Job> first_of(const std::vector<Job>& jobs, std::size_t most) {
  return {jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(std::min(jobs.size(), most))};
}

// Keeps the first `most` jobs. Returns whether there were more.
bool cut_to(std::vector<Job>& jobs, std::size_t most) {
  const bool are_more = jobs.size() > most;
  if (are_more) jobs.resize(most);
  return are_more;
}

// Steps of jobs that are no plans themselves, such as parts of a cluster alone. `most`: so many of them are judged.
std::vector<std::optional<double>> measured(const std::vector<Job>& jobs, const Judge& judge,
                                            std::size_t most, Plan& plan) {
  std::vector<std::optional<double>> steps(jobs.size());
  const std::size_t count = std::min(jobs.size(), most);
  if (count == 0) return steps;
  const std::vector<Verdict> verdicts = judge(first_of(jobs, count));
  for (std::size_t i = 0; i < count; ++i) {
    ++plan.judged;
    if (verdicts[i].stands())
      steps[i] = verdicts[i].step_s;
    else
      ++plan.refused;
  }
  return steps;
}

// The results of a policy's variants, of which a later one may do all that an earlier one does.
std::vector<VariantResult> variant_results(const std::vector<std::string>& variants,
                                           std::vector<double> best_s) {
  std::vector<VariantResult> results;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (i > 0 && best_s[i - 1] > 0 && (best_s[i] <= 0 || best_s[i - 1] < best_s[i]))
      best_s[i] = best_s[i - 1];
    results.push_back({variants[i], best_s[i]});
  }
  return results;
}

class Planner {
 public:
  Planner(const Job& job, const Judge& judge, const PlanLimits& limits)
      : job_(job), judge_(judge), limits_(limits), goal_(limits.goal) {}

  Plan run() {
    plan_.bound_s = work_bound_s(job_, pricer_);
    plan_.goal = goal_;
    plan_.value_bound =
        goal_.is_shortest_step() ? plan_.bound_s : GoalBounds(job_, pricer_).least_value(goal_);
    if (limits_.policy == PlanPolicy::optimal) {
      judge_own();
      // Half of the evaluations begin with closed forms, so that enough are left for the policies.
      until_ = (limits_.evaluations + 1) / 2;
      judge_proposals();
      until_ = limits_.evaluations;
      judge_policies();
      plan_.end = PlanEnd::no_move_helps;
      judge_proposals();
      if (!stands()) judge_all(sparing_jobs(job_, limits_.pins));
      for (Candidate& start : starts(std::move(judged_), goal_)) improve(std::move(start), false);
      replicate_unlike();
    } else {
      plan_.end = PlanEnd::all_judged;
      judge_policy(limits_.policy);
    }
    if (!stands()) refuse_no_plan(job_, pricer_, judge_, limits_, plan_, last_refusal_);
    if (!goal_.is_met(plan_.verdict)) refuse_target(plan_);
    return std::move(plan_);
  }

 private:
  bool stands() const { return plan_.simulated_s > 0; }

  bool goes_on() {
    if (plan_.judged >= until_)
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

  // Takes the plans of all policies, so that none of them is faster than the plan.
  void judge_policies() {
    for (const Plan& known : limits_.starts) add(known.job, known.verdict);
    if (!limits_.starts.empty()) return;
    const std::string refusal = last_refusal_;  // without a plan, what the own search ran into counts
    for (const PlanPolicy policy : kPublishedPolicies)
      if (goes_on()) judge_policy(policy);
    if (!refusal.empty()) last_refusal_ = refusal;
  }

  void judge_policy(PlanPolicy policy) {
    Job bare = job_;
    bare.strategy = {};
    const Measure measure = [this](const std::vector<Job>& jobs) {
      return measured(jobs, judge_, goes_on() ? until_ - plan_.judged : 0, plan_);
    };
    Proposals proposals;
    try {
      proposals = propose(policy, {bare, pricer_, measure});
    } catch (const Refusal& refusal) {  // chips that cannot reach each other: the policy proposes nothing
      last_refusal_ = refusal.message();
    }
    plan_.explored += proposals.explored;
    plan_.pruned += proposals.pruned;
    if (policy == limits_.policy) plan_.notes = proposals.notes;
    std::vector<double> best_s(std::max<std::size_t>(proposals.variants.size(), 1), 0);
    const auto take_step = [&](const Proposal& proposal) {
      const double step_s = step_of(proposal.job);
      double& best = best_s[at(proposal.variant)];
      if (step_s > 0 && (best <= 0 || step_s < best)) best = step_s;
      return step_s > 0;
    };
    for (std::size_t first = 0, last = 0; first < proposals.list.size(); first = last) {
      std::vector<Job> together;
      for (; last < proposals.list.size() &&
             together.size() < (proposals.ends_with_first ? 1 : limits_.together);
           ++last) {
        const Proposal& proposal = proposals.list[last];
        // Under `optimal` the fastest of all policies counts, else the fastest of the policy's variant.
        const double known_s = limits_.policy == policy ? best_s[at(proposal.variant)] : plan_.simulated_s;
        if (known_s <= 0 || proposal.least_s < known_s || !goal_.is_shortest_step())
          together.push_back(proposal.job);
      }
      judge_all(together);
      bool has_first = false;
      for (std::size_t i = first; i < last; ++i) has_first = take_step(proposals.list[i]) || has_first;
      if (proposals.ends_with_first && has_first) break;
    }
    if (policy == limits_.policy) plan_.variants = variant_results(proposals.variants, best_s);
  }

  void judge_proposals() {
    if (!proposed_) {
      // Whoever has little time has a plan before more is looked for.
      VSearchResult in_v = judge_first_in_v();
      proposed_ = propose_pipelines(job_, pricer_, limits_, plan_);
      proposed_->in_v = std::move(in_v);
      judge_all(first_of(proposed_->jobs, kEarly));
    }
    if (!goes_on()) return;
    if (!proposed_->has_all_kinds) add_other_kinds(job_, pricer_, limits_, *proposed_);
    judge_all(proposed_->jobs);
    if (!goes_on()) return;
    const auto is_refused = [this](const Job& each) { return known_step(each) == 0.0; };
    judge_all(with_memory(job_, pricer_, limits_, plan_, *proposed_, is_refused));
  }

  // In a V, hardly a chip waits.
  VSearchResult judge_first_in_v() {
    VSearchResult in_v = find_first_in_v(job_, pricer_, limits_);
    for (const Job& each : v_proposals(job_, in_v, Goal::kNone)) {
      judge_all({each});
      if (step_of(each) > 0 || !goes_on()) break;
    }
    return in_v;
  }

  // Comes after all else, so that no plan is slower for it.
  void replicate_unlike() {
    if (!pinned(limits_.form, limits_.pins, job_).has_unlike_replicas) return;
    judged_.clear();
    improved_s_ = plan_.simulated_s;
    if (proposed_ && goes_on())
      judge_all(replicated_unlike(job_, pricer_, proposed_->pipelines, limits_.has_time));
    if (stands()) improve({plan_.job, plan_.verdict}, true);
  }

  // Judges all moves from a job, and goes on from the best, until none is better. `replicates`: also those that
  // replicate some stages more often than others.
  void improve(Candidate now, bool replicates) {
    improved_s_ = now.verdict.step_s;
    if (now.job.cluster.transport != job_.cluster.transport) {
      Job own_transport = now.job;
      own_transport.cluster.transport = job_.cluster.transport;
      judged_.clear();
      judge_all({own_transport});
      for (Candidate& each : judged_)
        if (goal_.is_better(each.verdict, now.verdict)) now = std::move(each);
    }
    for (bool is_improved = true; is_improved;) {
      is_improved = false;
      for (const MoveKind kind : kImproving) {
        if (!goes_on()) return;
        if (kind == MoveKind::replicas && !replicates) continue;
        std::vector<Job> jobs;
        for (const Move& move : moves(now.job, kind))
          if (std::optional<Job> moved = apply(move, now.job))
            jobs.push_back(as_written(std::move(*moved), job_.train));
        if (kind == MoveKind::replicas) keep_near(jobs, now.job, pricer_);
        judged_.clear();
        judge_all(jobs);
        for (Candidate& each : judged_)
          if (goal_.is_better(each.verdict, now.verdict)) {
            now = std::move(each);
            is_improved = true;
          }
        improved_s_ = now.verdict.step_s;
      }
    }
  }

  // The job without what is ablated, as whoever runs it would run it. Nothing: there is no such job.
  std::optional<Job> as_judged(const Job& job) const {
    const std::optional<Job> without = ablated(job, limits_.ablate);
    return without && limits_.as_run ? limits_.as_run(*without) : without;
  }

  // The step of a job as it was judged; 0: it does not stand. Nothing, or 0: it was not judged.
  double step_of(const Job& job) const { return known_step(job).value_or(0); }
  std::optional<double> known_step(const Job& job) const {
    const std::optional<Job> without = as_judged(job);
    const auto known = without ? known_.find(key_of(*without)) : known_.end();
    return known == known_.end() ? std::nullopt : std::optional(known->second);
  }

  // Judges jobs that were not judged before, without what is ablated; the best of all becomes the plan.
  void judge_all(const std::vector<Job>& jobs) {
    std::vector<Job> together;
    std::set<std::string> together_keys;
    for (std::size_t i = 0; i <= jobs.size(); ++i) {
      if ((i < jobs.size() || !together.empty()) && !goes_on()) return;
      const std::optional<Job> job = i < jobs.size() ? as_judged(jobs[i]) : std::nullopt;
      if (job && keeps_pins(*job) && !known_.contains(key_of(*job)) &&
          together_keys.insert(key_of(*job)).second)
        together.push_back(*job);
      if (together.empty() || (i < jobs.size() && together.size() < limits_.together)) continue;
      if (cut_to(together, until_ - plan_.judged)) plan_.end = PlanEnd::evaluations;
      const double useful_s = improved_s_ > 0 ? improved_s_ : longest_start_s(judged_);
      const std::vector<Verdict> verdicts = judge_useful(together, judge_, limits_, useful_s);
      for (std::size_t j = 0; j < verdicts.size(); ++j) take(together[j], verdicts[j]);
      together.clear();
      if (!limits_.progress) continue;
      const bool is_met = stands() && goal_.is_met(plan_.verdict);
      limits_.progress(plan_.judged, is_met ? plan_.value() : 0, plan_.value_bound);
    }
  }

  bool keeps_pins(const Job& job) {
    const std::optional<std::string> broken = find_pin_broken_by(job, limits_.pins);
    if (broken) last_refusal_ = *broken;
    return !broken;
  }

  void take(const Job& job, const Verdict& verdict) {
    ++plan_.judged;
    known_[key_of(job)] = verdict.step_s;
    if (verdict.is_bound) {
      ++plan_.bounded;
    } else if (verdict.stands()) {
      add(job, verdict);
    } else {
      ++plan_.refused;
      last_refusal_ = verdict.refused;
    }
  }

  void add(const Job& job, const Verdict& verdict) {
    if (!stands() || goal_.is_better(verdict, plan_.verdict)) {
      plan_.job = job;
      plan_.simulated_s = verdict.step_s;
      plan_.verdict = verdict;
    }
    judged_.push_back({job, verdict});
  }

  const Job& job_;
  const Judge& judge_;
  const PlanLimits& limits_;
  const Goal& goal_;
  StagePricer pricer_{job_, {}, limits_.form.recomputes()};
  std::size_t until_ = limits_.evaluations;  // jobs that are judged until the next part of the search
  std::optional<Proposed> proposed_;
  std::map<std::string, double> known_;  // steps of the jobs that were judged; 0: a job does not stand
  std::vector<Candidate> judged_;        // those of the last proposals, or moves, that stand
  double improved_s_ = 0;                // step of what moves go on from; 0: there are no moves yet
  std::string last_refusal_;
  Plan plan_;
};

}  // namespace

Plan plan(const Job& job, const Judge& judge, const PlanLimits& limits) {
  return Planner(job, judge, limits).run();
}

}  // namespace motley
