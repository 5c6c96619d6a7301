#include "tools/fit/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace motley::fit {
namespace {

// The most that a round moves the logarithm of a figure: no simulation was near a point further away.
constexpr double kReach = 0.7;
// The fit ends when no logarithm moves by more: figures are written with four digits.
constexpr double kSettled = 1e-3;

// Groups of kinds whose derivatives one simulation gives, because no run depends on two kinds of a group.
std::vector<std::set<std::string>> kinds_moved_together(const Plan& plan) {
  std::vector<std::set<std::string>> groups(1);
  for (const FigurePlan& figure : plan.figures)
    if (figure.fused)
      groups[0].insert(figure.kind);
    else
      groups.push_back({figure.kind});
  if (groups[0].empty()) groups.erase(groups.begin());
  return groups;
}

}  // namespace

Fit::Fit(const Figures& figures, const std::vector<FitRun>& runs, std::set<std::string> moving, Tell tell)
    : figures_(figures), runs_(runs), moving_(std::move(moving)), tell_(std::move(tell)) {
  pulls_.error = figures.plan().error;
  pulls_.weights = weights_of(runs, figures.plan().rows_of_a_set);
  for (const FigureName& name : figures.names()) pulls_.free.push_back(moving_.contains(name.software));
}

Eigen::VectorXd Fit::errors_at(Predictor& predictor, const Eigen::VectorXd& values) const {
  const std::vector<double> steps = predictor.step_s(values);
  MOTLEY_CHECK(steps.size() == runs_.size());
  Eigen::VectorXd errors(static_cast<Eigen::Index>(steps.size()));
  for (std::size_t i = 0; i < steps.size(); ++i)
    errors[static_cast<Eigen::Index>(i)] = std::log(steps[i] / runs_[i].measured_s);
  return errors;
}

// All figures of a kind are moved at once, because a run depends only on the one of its own software and chip.
Eigen::MatrixXd Fit::derivatives(Predictor& predictor) const {
  const double step = figures_.plan().step;
  Eigen::MatrixXd jacobian = Eigen::MatrixXd::Zero(linear_.errors.size(), figures_.count());
  for (const std::set<std::string>& kinds : kinds_moved_together(figures_.plan())) {
    Eigen::VectorXd moved = linear_.at;
    for (std::size_t i = 0; i < figures_.names().size(); ++i)
      if (kinds.contains(figures_.names()[i].kind)) moved[static_cast<Eigen::Index>(i)] += step;
    const Eigen::VectorXd changes = (errors_at(predictor, moved) - linear_.errors) / step;
    for (std::size_t run = 0; run < runs_.size(); ++run)
      for (const std::string& kind : kinds)
        if (const Eigen::Index figure = figures_.index(runs_[run], kind); figure >= 0)
          jacobian(static_cast<Eigen::Index>(run), figure) = changes[static_cast<Eigen::Index>(run)];
  }
  return jacobian;
}

void Fit::run(Predictor& predictor, const Eigen::VectorXd& begin, int rounds) {
  linear_ = {begin, errors_at(predictor, begin), {}};
  optimum_ = {begin, Eigen::VectorXd::Zero(begin.size())};
  if (tell_) tell_(0, linear_.errors);
  Pulls pulls = pulls_;
  pulls.reach = kReach;
  const auto worth = [&](const LinearErrors& at) {
    return objective(at.errors, at.at, figures_.prior(), pulls_);
  };
  for (int round = 1; round <= rounds; ++round) {
    linear_.jacobian = derivatives(predictor);
    optimum_ = solve(linear_, figures_.prior(), pulls, true);
    const Eigen::VectorXd step = optimum_.values - linear_.at;
    LinearErrors next{optimum_.values, errors_at(predictor, optimum_.values), linear_.jacobian};
    for (double share = 0.5; share > 0.1 && worth(next) > worth(linear_); share /= 2) {
      next.at = linear_.at + share * step;
      next.errors = errors_at(predictor, next.at);
    }
    linear_ = std::move(next);
    optimum_.values = linear_.at;
    if (tell_) tell_(round, linear_.errors);
    if (step.cwiseAbs().maxCoeff() < kSettled) return;
  }
}

LeftOut Fit::without(const std::function<bool(const FitRun&)>& left_out) const {
  LeftOut refit;
  Pulls pulls = pulls_;
  std::set<std::string> software;
  for (std::size_t i = 0; i < runs_.size(); ++i)
    if (left_out(runs_[i])) {
      pulls.weights[i] = 0;
      refit.ids.push_back(runs_[i].id);
      software.insert(runs_[i].software);
    }
  refit.software.assign(software.begin(), software.end());
  refit.values = solve(linear_, figures_.prior(), pulls, false).values;
  return refit;
}

LeftOut Fit::leave_out_software(const std::string& software) const {
  return without([&](const FitRun& run) { return run.software == software; });
}

std::vector<LeftOut> Fit::leave_out() const {
  std::set<std::string> sets, sizes;
  for (const FitRun& run : runs_) {
    sets.insert(run.set);
    sizes.insert(run.size);
  }
  std::map<std::string, int> fold;
  for (const std::string& size : sizes) {
    const int next = static_cast<int>(fold.size());
    fold[size] = next % figures_.plan().folds;
  }
  std::vector<LeftOut> fits;
  for (int f = 0; f < figures_.plan().folds; ++f) {
    LeftOut each = without([&](const FitRun& run) { return fold.at(run.size) == f; });
    if (!each.ids.empty()) fits.push_back(std::move(each));
  }
  for (const std::string& set : sets) {
    fits.push_back(without([&](const FitRun& run) { return run.set == set; }));
    fits.back().set = set;
  }
  return fits;
}

}  // namespace motley::fit
