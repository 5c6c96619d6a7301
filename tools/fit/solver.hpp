// The figures at which errors and priors pull alike, by Ceres: errors of runs count as soft-L1, those of a set no more
// than so many, and priors are normal in the logarithm. Errors are linear in the figures here; simulations are not,
// which is why each round of a fit makes them so again. Read next: tools/fit/rounds.hpp.
#pragma once

#include <Eigen/Dense>
#include <optional>
#include <string>
#include <vector>

#include "tools/fit/figures.hpp"

namespace motley::fit {

// Logarithms of predicted over measured, near some values of the figures.
struct LinearErrors {
  Eigen::VectorXd at;        // the figures' values
  Eigen::VectorXd errors;    // there, by run
  Eigen::MatrixXd jacobian;  // (runs, figures)
  Eigen::VectorXd errors_at(const Eigen::VectorXd& values) const { return errors + jacobian * (values - at); }
};

struct Pulls {
  double error = 0.05;          // beyond it a run pulls less and less
  std::vector<double> weights;  // by run; 0: it takes no part
  std::vector<bool> free;       // by figure; the others stay where they are
  std::optional<double> reach;  // no figure is moved further, in the logarithm
};
// Rows of a set that has more than `most` count as so many.
std::vector<double> weights_of(const std::vector<FitRun>& runs, double most);

struct Optimum {
  Eigen::VectorXd values;
  Eigen::VectorXd spread;  // standard deviations; of figures that stay, 0
};
// What is minimised: half of 2 w (sqrt(1 + (error / e)^2) - 1) over runs, and of the squares of the prior.
double objective(const Eigen::VectorXd& errors, const Eigen::VectorXd& values, const Prior& prior,
                 const Pulls& pulls);
// Throws RunFailure where Ceres finds no solution. `with_spread`: else there is none.
Optimum solve(const LinearErrors& linear, const Prior& prior, const Pulls& pulls, bool with_spread);

}  // namespace motley::fit
