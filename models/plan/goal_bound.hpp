// Bounds that no strategy passes, for every objective of a plan, also under a deadline and a budget. They follow from
// the chip-seconds that the kernels of the model take on each group at least (models/plan/stage_price.hpp). Read next:
// models/plan/work_bound.hpp, models/plan/goal.hpp.
#pragma once

#include <vector>

#include "models/plan/goal.hpp"
#include "models/plan/stage_price.hpp"

namespace motley {

class GoalBounds {
 public:
  GoalBounds(const Job& job, StagePricer& pricer);
  // With the least work of each group (StagePricer::least_work()), which does not depend on the other groups.
  GoalBounds(const Job& job, std::vector<StagePricer::LeastWork> work);

  // The least value of the goal that any strategy of the job has. 0: a chip lacks a price or a power, so that nothing
  // is known. Infinite: no strategy meets the targets.
  //
  // With x_k the chip-seconds in which chips of group k compute, a step takes T >= x_k / n_k, its rent is at least
  // sum of price_k x_k, and its energy at least sum of power_k x_k: a chip is rented for the whole step, and draws its
  // computing power while it computes. All kernels take sum of w_k x_k >= least(w) for all prices w, so that
  //   value >= least(v + y + l p) - T0 sum of n_k y_k - l P0
  // for every y, l >= 0 (linear programming's dual), with targets T0 and P0. Any y and l give a bound that holds; good
  // ones are looked for.
  double least_value(const Goal& goal) const;
  // The least of sum w_k x_k over all ways to divide the kernels over the groups.
  double least(const std::vector<double>& weights) const;

 private:
  // What a chip-second costs on each group, in the objective's unit. Assumes for energy and carbon: the chip draws
  // kComputingPower (models/report/spending.hpp), its share of the node draws the rest of the node's power.
  std::vector<double> weights_of(PlanObjective objective) const;

  const Job& job_;
  std::vector<StagePricer::LeastWork> work_;  // of one sequence, by group
  std::vector<double> chips_;
  double least_step_s_ = 0;  // of any strategy on any chips
};

}  // namespace motley
