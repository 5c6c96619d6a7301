#include "models/plan/pareto.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/plan/goal_bound.hpp"

namespace motley {
namespace {

constexpr int kDeadlines = 6;

// Keeps every strategy that was judged and stands, and judges none twice.
class FrontJudge {
 public:
  explicit FrontJudge(const Judge& judge) : judge_(judge) {}

  std::vector<Verdict> operator()(const std::vector<Job>& jobs) {
    std::vector<Job> unknown;
    for (const Job& job : jobs)
      if (!verdicts_.contains(print(job.strategy))) unknown.push_back(job);
    const std::vector<Verdict> verdicts = unknown.empty() ? std::vector<Verdict>{} : judge_(unknown);
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      verdicts_.emplace(print(unknown[i].strategy), verdicts[i]);
      if (!verdicts[i].stands()) continue;
      ++stood;
      points.push_back({std::move(unknown[i]), verdicts[i], {}, {}});
    }
    std::vector<Verdict> all;
    for (const Job& job : jobs) all.push_back(verdicts_.at(print(job.strategy)));
    return all;
  }
  std::size_t judged() const { return verdicts_.size(); }

  std::vector<ParetoPoint> points;
  std::size_t stood = 0;

 private:
  const Judge& judge_;
  std::map<std::string, Verdict> verdicts_;  // by strategy
};

std::vector<double> values_of(const std::vector<PlanObjective>& objectives, const Verdict& verdict) {
  std::vector<double> values;
  for (const PlanObjective objective : objectives) values.push_back(Goal{objective}.value(verdict));
  return values;
}

// Leaves the points that no other dominates; of equal ones the first.
std::vector<ParetoPoint> undominated(std::vector<ParetoPoint> points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const ParetoPoint& a, const ParetoPoint& b) { return a.values < b.values; });
  std::vector<ParetoPoint> front;
  for (ParetoPoint& point : points) {
    const bool is_worse = std::any_of(front.begin(), front.end(), [&](const ParetoPoint& other) {
      return other.values == point.values || dominates(other.values, point.values);
    });
    if (!is_worse) front.push_back(std::move(point));
  }
  return front;
}

}  // namespace

bool dominates(const std::vector<double>& a, const std::vector<double>& b) {
  bool is_better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    is_better = is_better || a[i] < b[i];
  }
  return is_better;
}

ParetoFront plan_front(const Job& job, const Judge& judge, const PlanLimits& limits,
                       const std::vector<PlanObjective>& objectives) {
  ParetoFront front;
  front.objectives = objectives;
  FrontJudge keeping(judge);
  PlanLimits asked = limits;
  asked.judge_below = {};  // every strategy is wanted, not the best alone
  const auto planned = [&](PlanObjective objective, double most_step_s) {
    asked.goal = limits.goal;
    asked.goal.objective = objective;
    asked.goal.most_step_s = std::min(limits.goal.most_step_s, most_step_s);
    return plan(job, std::ref(keeping), asked);
  };
  std::vector<Plan> best;
  for (const PlanObjective objective : objectives) best.push_back(planned(objective, Goal::kNone));
  for (std::size_t time = 0; time < objectives.size(); ++time)
    for (std::size_t i = 0; i < objectives.size() && objectives[time] == PlanObjective::time; ++i) {
      if (i == time) continue;
      const double shortest_s = best[time].verdict.step_s, longest_s = best[i].verdict.step_s;
      for (int step = 1; step < kDeadlines && limits.has_time(); ++step) try {
          planned(objectives[i],
                  shortest_s * std::pow(longest_s / shortest_s, static_cast<double>(step) / kDeadlines));
        } catch (const Refusal& refusal) {  // the search for this objective found nothing so fast
          if (refusal.kind() != "misses-target") throw;
        }
    }
  StagePricer pricer(job);
  const GoalBounds bounds(job, pricer);
  std::vector<ParetoPoint> points = std::move(keeping.points);
  std::erase_if(points, [&](const ParetoPoint& point) { return !limits.goal.is_met(point.verdict); });
  for (ParetoPoint& point : points) point.values = values_of(objectives, point.verdict);
  front.points = undominated(std::move(points));
  for (ParetoPoint& point : front.points)
    for (const PlanObjective objective : objectives) {
      Goal goal{objective};
      if (objective != PlanObjective::time) goal.most_step_s = point.verdict.step_s;
      if (objective != PlanObjective::price && point.verdict.bill.usd.value_or(0) > 0)
        goal.most_step_usd = *point.verdict.bill.usd;
      point.bounds.push_back(bounds.least_value(goal));
    }
  front.judged = keeping.judged();
  front.refused = front.judged - keeping.stood;
  return front;
}

}  // namespace motley
