#include "models/plan/goal_bound.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/work_bound.hpp"

namespace motley {
namespace {

// The fastest chip of each group, as `slow` says; at least 1.
std::vector<double> fastest_speeds(const Cluster& cluster) {
  std::vector<double> speeds(cluster.groups.size(), 1);
  for (int chip = 0; chip < cluster.chip_count(); ++chip) {
    double& speed = speeds[at(cluster.chip_group[at(chip)])];
    speed = std::max(speed, cluster.speed_of(chip));
  }
  return speeds;
}

// Raises a function of positive variables by changing one at a time by ever smaller factors. Returns the most that it
// found.
double raised(std::vector<double> place, const std::function<double(const std::vector<double>&)>& function) {
  double most = function(place);
  for (double factor = 4; factor > 1.0005;) {
    bool is_raised = false;
    for (double& each : place)
      for (const double step : {factor, 1 / factor}) {
        const double before = each;
        each *= step;
        const double value = function(place);
        if (value > most) {
          most = value;
          is_raised = true;
        } else {
          each = before;
        }
      }
    if (!is_raised) factor = 1 + (factor - 1) / 2;
  }
  return most;
}

std::vector<StagePricer::LeastWork> least_works(const Job& job, StagePricer& pricer) {
  std::vector<StagePricer::LeastWork> works;
  for (std::size_t group = 0; group < job.cluster.groups.size(); ++group)
    works.push_back(pricer.least_work(static_cast<int>(group)));
  return works;
}

}  // namespace

GoalBounds::GoalBounds(const Job& job, StagePricer& pricer) : GoalBounds(job, least_works(job, pricer)) {
  least_step_s_ = work_bound_s(job, pricer);
}

GoalBounds::GoalBounds(const Job& job, std::vector<StagePricer::LeastWork> work)
    : job_(job), work_(std::move(work)) {
  const std::vector<double> speeds = fastest_speeds(job.cluster);
  for (std::size_t group = 0; group < job.cluster.groups.size(); ++group) {
    for (double& layer_s : work_[group].layers) layer_s /= speeds[group];
    work_[group].ends /= speeds[group];
    const NodeGroup& nodes = job.cluster.groups[group];
    chips_.push_back(static_cast<double>(nodes.nodes) * nodes.chips_per_node);
  }
}

std::vector<double> GoalBounds::weights_of(PlanObjective objective) const {
  constexpr double kSecondsPerHour = 3600, kJoulesOfKwh = 3.6e6;
  std::vector<double> weights;
  for (std::size_t group = 0; group < work_.size(); ++group) {
    const NodeGroup& nodes = job_.cluster.groups[group];
    const Site site = job_.cluster.site_of(static_cast<int>(group));
    const double watts =
        (nodes.chip.watts.value * kComputingPower + site.node_watts / nodes.chips_per_node) * site.pue;
    switch (objective) {
      case PlanObjective::time:  // no sum over chips
        break;
      case PlanObjective::price:
        weights.push_back(nodes.chip.price_per_hour.value / kSecondsPerHour);
        break;
      case PlanObjective::energy:
        weights.push_back(watts / kJoulesOfKwh);
        break;
      case PlanObjective::carbon:
        weights.push_back(watts / kJoulesOfKwh * site.carbon.value_or(0) / 1000);
    }
  }
  return weights;
}

double GoalBounds::least(const std::vector<double>& weights) const {
  const auto least_of = [&](auto&& seconds_of) {
    double value = Goal::kNone;
    for (std::size_t group = 0; group < work_.size(); ++group)
      if (chips_[group] > 0) value = std::min(value, weights[group] * seconds_of(work_[group]));
    return value;
  };
  double sum = least_of([](const StagePricer::LeastWork& each) { return each.ends; });
  for (std::int64_t layer = 0; layer < job_.transformer.layers; ++layer)
    sum += least_of([&](const StagePricer::LeastWork& each) { return each.layers[at(layer)]; });
  return sum * static_cast<double>(job_.train.global_batch);
}

double GoalBounds::least_value(const Goal& goal) const {
  const std::size_t groups = work_.size();
  const std::vector<double> prices = weights_of(PlanObjective::price);
  const bool has_budget = goal.most_step_usd < Goal::kNone;
  // The dual's variables: y of each group, and then l.
  const auto weighted = [&](const std::vector<double>& y, std::vector<double> weights) {
    for (std::size_t group = 0; group < groups; ++group)
      weights[group] += y[group] + (has_budget ? y[groups] * prices[group] : 0);
    return least(weights) - (has_budget ? y[groups] * goal.most_step_usd : 0);
  };
  const auto chip_seconds = [&](const std::vector<double>& y) {
    return std::inner_product(chips_.begin(), chips_.end(), y.begin(), 0.0);
  };
  const std::vector<double> nothing(groups, 0);
  std::vector<double> start;
  for (const StagePricer::LeastWork& work : work_)
    start.push_back(1 / std::accumulate(work.layers.begin(), work.layers.end(), work.ends));
  start.push_back(0);
  const auto time_at_least = [&](const std::vector<double>& y) {
    return weighted(y, nothing) / chip_seconds(y);
  };
  const auto best_from = [&](auto&& function, double unit) {
    double most = function(start);
    for (double share = 1e-6; has_budget && share < 1e7; share *= 100) {
      std::vector<double> with_budget = start;
      with_budget[groups] = share * unit;
      most = std::max(most, raised(with_budget, function));
    }
    return std::max(most, raised(start, function));
  };
  const double time_s =
      std::max(least_step_s_, best_from(time_at_least, 1 / *std::max_element(prices.begin(), prices.end())));
  if (time_s > goal.most_step_s * (1 + 1e-9)) return Goal::kNone;
  if (has_budget && least(prices) > goal.most_step_usd * (1 + 1e-9)) return Goal::kNone;
  if (goal.objective == PlanObjective::time) return time_s;
  const std::vector<double> weights = weights_of(goal.objective);
  double most = least(weights);
  if (goal.most_step_s == Goal::kNone) return most;
  const auto value_at_least = [&](const std::vector<double>& y) {
    return weighted(y, weights) - goal.most_step_s * chip_seconds(y);
  };
  for (double share = 1e-4; share < 1e5; share *= 10) {
    const double unit = share * most / (goal.most_step_s * chip_seconds(start));
    std::vector<double> scaled = start;
    for (double& each : scaled) each *= unit;
    if (has_budget) scaled[groups] = share;
    most = std::max(most, raised(scaled, value_at_least));
  }
  return most;
}

}  // namespace motley
