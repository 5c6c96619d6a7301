// Finds, with Ceres, the figures at which errors and priors balance. Errors of runs enter by the soft-L1 loss, a set
// counts as a limited number of runs, and priors are normal in the logarithm. Errors are linear in the figures here;
// simulations are not, so each round of a fit makes them linear again. Read next: tools/fit/rounds.hpp.
#pragma once

#include <Eigen/Dense>
#include <optional>
#include <string>
#include <vector>

#include "tools/fit/figures.hpp"

namespace motley::fit {

// The logarithms of predicted over measured, linear in the figures around some values.
struct LinearErrors {
  Eigen::VectorXd at;        // the values of the figures
  Eigen::VectorXd errors;    // the errors there, indexed by run
  Eigen::MatrixXd jacobian;  // (runs, figures)
  Eigen::VectorXd errors_at(const Eigen::VectorXd& values) const { return errors + jacobian * (values - at); }
};

struct Pulls {
  double error = 0.05;          // runs with larger errors pull less than in proportion
  std::vector<double> weights;  // indexed by run; 0: the run takes no part
  std::vector<bool> free;       // indexed by figure; false: the figure keeps its value
  std::optional<double> reach;  // the most that the logarithm of a figure may move; none: no limit
};
// The weights of runs: a set with more than `most` rows counts as `most` rows.
std::vector<double> weights_of(const std::vector<FitRun>& runs, double most);

struct Optimum {
  Eigen::VectorXd values;
  Eigen::VectorXd spread;  // standard deviations; 0: the figure is not free, or no spread was asked for
};
// The function that is minimised: half the sum of 2 w (sqrt(1 + (error / e)^2) - 1) over runs and of the prior's
// square.
double objective(const Eigen::VectorXd& errors, const Eigen::VectorXd& values, const Prior& prior,
                 const Pulls& pulls);
// Throws RunFailure if Ceres finds no solution. `with_spread` false: Optimum::spread is 0.
Optimum solve(const LinearErrors& linear, const Prior& prior, const Pulls& pulls, bool with_spread);

}  // namespace motley::fit
