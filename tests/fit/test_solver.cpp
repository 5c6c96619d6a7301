// The optimum of runs and priors: compared with its definition, and with what robust and weighted should mean.
#include <catch2/catch.hpp>

#include "tests/support/fit_world.hpp"
#include "tools/fit/solver.hpp"

using namespace motley;
using namespace motley::fit;

namespace {

struct Some {
  LinearErrors linear;
  Prior prior;
  Pulls pulls;
};
Some some(Eigen::Index runs, Eigen::Index figures, double scatter) {
  Some problem;
  problem.linear = {
      random_vector(figures, 0.3, 1), random_vector(runs, scatter, 2),
      Eigen::Map<const Eigen::MatrixXd>(random_vector(runs * figures, 1, 3).data(), runs, figures)};
  problem.prior.mean = random_vector(figures, 0.3, 4);
  problem.prior.precision = Eigen::MatrixXd::Constant(figures, figures, 0.5);
  for (Eigen::Index i = 0; i < figures; ++i) problem.prior.precision(i, i) += 1 + static_cast<double>(i);
  problem.pulls.weights.assign(static_cast<std::size_t>(runs), 1);
  problem.pulls.free.assign(static_cast<std::size_t>(figures), true);
  return problem;
}

// The derivative of the sum of w (sqrt(1 + (r/e)^2) - 1) plus half the prior's square, written out.
Eigen::VectorXd pull_at(const Some& problem, const Eigen::VectorXd& values) {
  Eigen::VectorXd pull = problem.prior.precision * (values - problem.prior.mean);
  const Eigen::VectorXd errors =
      problem.linear.errors + problem.linear.jacobian * (values - problem.linear.at);
  for (Eigen::Index i = 0; i < errors.size(); ++i) {
    const double e = errors[i] / problem.pulls.error;
    pull += problem.pulls.weights[static_cast<std::size_t>(i)] * e / std::sqrt(1 + e * e) /
            problem.pulls.error * problem.linear.jacobian.row(i).transpose();
  }
  return pull;
}

// The fitted value of one figure, of which run i says that it is says[i].
double mean_of(const std::vector<double>& says, const std::vector<double>& weights, double error) {
  const auto n = static_cast<Eigen::Index>(says.size());
  LinearErrors linear{Eigen::VectorXd::Zero(1), Eigen::VectorXd(n), Eigen::MatrixXd::Ones(n, 1)};
  for (std::size_t i = 0; i < says.size(); ++i) linear.errors[static_cast<Eigen::Index>(i)] = -says[i];
  const Prior weak{Eigen::VectorXd::Zero(1), Eigen::MatrixXd::Constant(1, 1, 1e-9)};
  return solve(linear, weak, {error, weights, {true}, {}}, false).values[0];
}

}  // namespace

TEST_CASE("at the optimum of the fit nothing pulls, and only what is free has moved") {
  Some problem = some(60, 7, 0.2);
  for (std::size_t i = 0; i < problem.pulls.weights.size(); ++i)
    problem.pulls.weights[i] = i % 5 == 0 ? 0 : 0.2 + 0.01 * static_cast<double>(i);
  problem.pulls.free[2] = problem.pulls.free[4] = false;
  const Optimum optimum = solve(problem.linear, problem.prior, problem.pulls, true);
  const Eigen::VectorXd pull = pull_at(problem, optimum.values), before = pull_at(problem, problem.linear.at);
  for (Eigen::Index i = 0; i < 7; ++i) {
    INFO("figure " << i);
    const bool held = i == 2 || i == 4;
    CHECK((optimum.values[i] == problem.linear.at[i]) == held);
    CHECK((optimum.spread[i] == 0) == held);
    if (!held) CHECK(std::abs(pull[i]) < 1e-5 * before.cwiseAbs().maxCoeff());
  }
}

TEST_CASE("the objective of the fit is the one whose derivatives its optimum has none of") {
  const Some problem = some(30, 4, 0.2);
  const Eigen::VectorXd at = random_vector(4, 0.2, 9);
  const Eigen::VectorXd pull = pull_at(problem, at);
  for (Eigen::Index i = 0; i < 4; ++i) {
    Eigen::VectorXd more = at, less = at;
    more[i] += 1e-5;
    less[i] -= 1e-5;
    const auto worth = [&](const Eigen::VectorXd& v) {
      return objective(problem.linear.errors_at(v), v, problem.prior, problem.pulls);
    };
    CHECK((worth(more) - worth(less)) / 2e-5 == Approx(pull[i]).epsilon(1e-5));
  }
}

TEST_CASE("spreads are those of a normal where errors are small: the inverse of all that is known") {
  Some problem = some(40, 5, 1e-4);
  problem.linear.at = problem.prior.mean;
  const Optimum optimum = solve(problem.linear, problem.prior, problem.pulls, true);
  const Eigen::MatrixXd known =
      problem.linear.jacobian.transpose() * problem.linear.jacobian / 0.05 / 0.05 + problem.prior.precision;
  const Eigen::VectorXd expected = known.inverse().diagonal().cwiseSqrt();
  for (Eigen::Index i = 0; i < 5; ++i) CHECK(optimum.spread[i] == Approx(expected[i]).epsilon(1e-3));
}

TEST_CASE("one run that lies far off moves the fit less than it moves a mean") {
  std::vector<double> says(20, 0.0);
  says.back() = 2.0;  // this run takes e^2 times as long
  const std::vector<double> alike(20, 1.0);
  const double robust = mean_of(says, alike, 0.05), squares = mean_of(says, alike, 100);
  CHECK(squares == Approx(0.1).epsilon(0.01));
  CHECK(robust > 0);
  CHECK(robust < 0.05 * squares);
  says.back() = 4.0;  // even further away, it moves the fit hardly more
  CHECK(mean_of(says, alike, 0.05) < 1.05 * robust);
}

TEST_CASE("a set of 600 rows pulls as one of 60 does, and one of 30 as half of that") {
  std::vector<FitRun> runs = runs_of("a", "s", "c", 600);
  for (const auto& more : {runs_of("b", "s", "c", 60), runs_of("d", "s", "c", 30)})
    runs.insert(runs.end(), more.begin(), more.end());
  const std::vector<double> weights = weights_of(runs, 60);
  std::vector<double> says;
  for (const FitRun& run : runs) says.push_back(run.set == "a" ? 0.01 : run.set == "b" ? -0.01 : 0);
  CHECK(mean_of(says, weights, 100) == Approx(0).margin(1e-6));
  for (std::size_t i = 0; i < runs.size(); ++i)
    says[i] = runs[i].set == "a" ? 0.01 : runs[i].set == "b" ? 0.01 : -0.04;
  CHECK(mean_of(says, weights, 100) == Approx(0).margin(1e-6));
}

TEST_CASE("no figure goes beyond its reach, and one that needs not go so far ends where it would") {
  Some problem = some(40, 3, 0.2);
  const Optimum free = solve(problem.linear, problem.prior, problem.pulls, false);
  const Eigen::VectorXd moved = (free.values - problem.linear.at).cwiseAbs();
  problem.pulls.reach = 0.5 * moved.maxCoeff();
  const Optimum held = solve(problem.linear, problem.prior, problem.pulls, false);
  CHECK((held.values - problem.linear.at).cwiseAbs().maxCoeff() == Approx(*problem.pulls.reach));
  problem.pulls.reach = 2 * moved.maxCoeff();
  CHECK((solve(problem.linear, problem.prior, problem.pulls, false).values - free.values)
            .cwiseAbs()
            .maxCoeff() < 1e-6);
}
