#include "tools/fit/solver.hpp"

#include <ceres/ceres.h>
#include <ceres/normal_prior.h>

#include <cmath>
#include <map>

namespace motley::fit {
namespace {

// The error of one run, divided by Pulls::error.
class RunError : public ceres::CostFunction {
 public:
  RunError(const LinearErrors& linear, Eigen::Index run, double error)
      : linear_(linear), run_(run), error_(error) {
    set_num_residuals(1);
    mutable_parameter_block_sizes()->push_back(static_cast<int>(linear.at.size()));
  }
  bool Evaluate(const double* const* parameters, double* residuals, double** jacobians) const override {
    const Eigen::Index n = linear_.at.size();
    const Eigen::Map<const Eigen::VectorXd> values(parameters[0], n);
    residuals[0] = (linear_.errors[run_] + linear_.jacobian.row(run_).dot(values - linear_.at)) / error_;
    if (jacobians != nullptr && jacobians[0] != nullptr)
      Eigen::Map<Eigen::RowVectorXd>(jacobians[0], n) = linear_.jacobian.row(run_) / error_;
    return true;
  }

 private:
  const LinearErrors& linear_;
  Eigen::Index run_;
  double error_;
};

void add_runs(const LinearErrors& linear, const Pulls& pulls, double* values, ceres::Problem& problem) {
  for (Eigen::Index run = 0; run < linear.errors.size(); ++run) {
    const double weight = pulls.weights.at(static_cast<std::size_t>(run));
    if (weight <= 0) continue;
    // The problem owns the loss.
    auto* const loss = new ceres::ScaledLoss(new ceres::SoftLOneLoss(1), weight, ceres::TAKE_OWNERSHIP);
    problem.AddResidualBlock(new RunError(linear, run, pulls.error), loss, values);
  }
}

void hold(const Pulls& pulls, const LinearErrors& linear, double* values, ceres::Problem& problem) {
  std::vector<int> held;
  for (std::size_t i = 0; i < pulls.free.size(); ++i) {
    const int at = static_cast<int>(i);
    if (!pulls.free[i]) {
      held.push_back(at);
    } else if (pulls.reach) {
      problem.SetParameterLowerBound(values, at, linear.at[at] - *pulls.reach);
      problem.SetParameterUpperBound(values, at, linear.at[at] + *pulls.reach);
    }
  }
  if (!held.empty())
    problem.SetManifold(values, new ceres::SubsetManifold(static_cast<int>(pulls.free.size()), held));
}

// Standard deviations of the free figures, from the inverse of the Gauss-Newton approximation of the second
// derivatives, robust weights included.
Eigen::VectorXd spread_of(const Pulls& pulls, const double* values, ceres::Problem& problem) {
  ceres::Covariance::Options options;
  options.algorithm_type = ceres::DENSE_SVD;
  ceres::Covariance covariance(options);
  if (!covariance.Compute({std::pair(values, values)}, &problem))
    throw RunFailure("the fit's spreads cannot be computed: its figures are not told apart");
  const auto n = static_cast<Eigen::Index>(pulls.free.size());
  Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> block(n, n);
  if (!covariance.GetCovarianceBlock(values, values, block.data()))
    throw RunFailure("the fit's spreads cannot be computed");
  return block.diagonal().cwiseMax(0).cwiseSqrt();
}

}  // namespace

std::vector<double> weights_of(const std::vector<FitRun>& runs, double most) {
  std::map<std::string, double> rows;
  for (const FitRun& run : runs) ++rows[run.set];
  std::vector<double> weights;
  for (const FitRun& run : runs) weights.push_back(std::min(1.0, most / rows[run.set]));
  return weights;
}

double objective(const Eigen::VectorXd& errors, const Eigen::VectorXd& values, const Prior& prior,
                 const Pulls& pulls) {
  double sum = 0;
  for (Eigen::Index i = 0; i < errors.size(); ++i)
    sum += pulls.weights[static_cast<std::size_t>(i)] * (std::hypot(1, errors[i] / pulls.error) - 1);
  const Eigen::VectorXd off = values - prior.mean;
  return sum + 0.5 * off.dot(prior.precision * off);
}

Optimum solve(const LinearErrors& linear, const Prior& prior, const Pulls& pulls, bool with_spread) {
  Optimum optimum{linear.at, Eigen::VectorXd::Zero(linear.at.size())};
  double* const values = optimum.values.data();
  ceres::Problem problem;
  problem.AddParameterBlock(values, static_cast<int>(optimum.values.size()));
  add_runs(linear, pulls, values, problem);
  const Eigen::MatrixXd root = prior.precision.llt().matrixU();
  problem.AddResidualBlock(new ceres::NormalPrior(root, prior.mean), nullptr, values);
  hold(pulls, linear, values, problem);

  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_QR;
  options.max_num_iterations = 500;
  options.initial_trust_region_radius = 1e8;
  options.function_tolerance = 1e-15;
  options.gradient_tolerance = 1e-9;
  options.parameter_tolerance = 1e-10;
  options.logging_type = ceres::SILENT;
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  if (!summary.IsSolutionUsable()) throw RunFailure("Ceres finds no figures: " + summary.message);
  if (with_spread) optimum.spread = spread_of(pulls, values, problem);
  return optimum;
}

}  // namespace motley::fit
