#include "models/plan/policies.hpp"

#include <map>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/plan/policy.hpp"

namespace motley {
namespace {

// A judge that knows what it has judged.
class RememberingJudge {
 public:
  explicit RememberingJudge(const Judge& judge) : judge_(judge) {}

  std::vector<Verdict> operator()(const std::vector<Job>& jobs) {
    std::vector<std::string> keys;
    std::vector<Job> unknown;
    std::vector<std::string> unknown_keys;
    for (const Job& job : jobs) {
      keys.push_back(key_of(job));
      if (known_.contains(keys.back())) continue;
      unknown.push_back(job);
      unknown_keys.push_back(keys.back());
    }
    if (!unknown.empty()) {
      const std::vector<Verdict> verdicts = judge_(unknown);
      for (std::size_t i = 0; i < verdicts.size(); ++i) known_[unknown_keys[i]] = verdicts[i];
    }
    std::vector<Verdict> verdicts;
    for (const std::string& key : keys) verdicts.push_back(known_.at(key));
    return verdicts;
  }

 private:
  // Jobs of one plan differ in their strategies, transports, micro-batches, and in the groups of their clusters.
  static std::string key_of(const Job& job) {
    std::string key = print(job.strategy) + std::string(name_of(job.cluster.transport)) + " " +
                      std::to_string(job.train.micro_batch);
    for (const NodeGroup& group : job.cluster.groups) key += "\n" + group.name;
    return key;
  }

  const Judge& judge_;
  std::map<std::string, Verdict> known_;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::vector<PolicyPlan> plan_by_all(const Job& job, const Judge& judge, PlanLimits limits) {
  limits.judge_below = {};  // a bound is no verdict to remember
  RememberingJudge remembering(judge);
  const Judge remembered = std::ref(remembering);
  std::vector<PolicyPlan> plans;
  const auto plan_by = [&](PlanPolicy policy) {
    PolicyPlan each;
    each.policy = limits.policy = policy;
    try {
      each.plan = plan(job, remembered, limits);
    } catch (const Refusal& refusal) {
      if (refusal.kind() != "no-plan") throw;
      each.refused = first_line(refusal.message());
    }
    return each;
  };
  for (const PlanPolicy policy : every<PlanPolicy>())
    if (policy != PlanPolicy::optimal && policy != PlanPolicy::all) {
      plans.push_back(plan_by(policy));
      if (plans.back().plan) limits.starts.push_back(*plans.back().plan);
    }
  limits.policy = PlanPolicy::optimal;
  plans.insert(plans.begin(), {PlanPolicy::optimal, plan(job, remembered, limits), {}});
  return plans;
}

}  // namespace motley
