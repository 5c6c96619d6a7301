// The figures that are fitted, one for each software, chip and kind, their log-normal priors, and their text. A trial
// uses the same text as the files of platforms/software/, so that the two cannot differ. All values are logarithms of
// seconds or of plain numbers. Read next: tools/fit/solver.hpp.
#pragma once

#include <Eigen/Dense>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/published/published_run.hpp"
#include "models/scenario/measured_on.hpp"
#include "tools/fit/plan.hpp"

namespace motley::fit {

// A published run that takes part in the fit.
struct FitRun {
  std::string id, set, software, chip;
  std::string size;  // equal for runs that are left out together: see size_of()
  double measured_s = 0;
  MeasuredOn place = {};
};

struct FigureName {
  std::string software;
  std::string chip;  // empty: a figure of the network, the same on every chip
  std::string kind;
  bool operator==(const FigureName&) const = default;
};

struct Prior {
  Eigen::VectorXd mean;
  Eigen::MatrixXd precision;  // the inverse of the covariance
};

class Figures {
 public:
  // The figures of the software and chips of `runs`.
  Figures(Plan plan, const std::vector<FitRun>& runs);

  const Plan& plan() const { return plan_; }
  const std::vector<FigureName>& names() const { return names_; }
  Eigen::Index count() const { return prior_.mean.size(); }
  const Prior& prior() const { return prior_; }
  std::vector<std::string> software() const;  // sorted names
  // -1: there is no such figure.
  Eigen::Index index(const FigureName& name) const;
  // The figure of that kind for the run's software on its chip; -1: there is no such figure.
  Eigen::Index index(const FitRun& run, const std::string& kind) const;

  // The values in the files of that folder. A figure that no file has, or whose file is missing, is at its prior.
  Eigen::VectorXd values_in(const std::string& folder) const;

  using SourceOf = std::function<std::string(Eigen::Index)>;
  // The text of a file of platforms/software/ without its interval; each line begins with `indent`.
  std::string text(const std::string& software, const Eigen::VectorXd& values, const SourceOf& source_of,
                   const std::string& indent = "") const;
  // The same text, parsed.
  TrialFigures trial(const Eigen::VectorXd& values) const;

 private:
  Plan plan_;
  std::vector<FigureName> names_;
  Prior prior_;

  void add_prior(const std::vector<double>& mean, const std::vector<double>& spread);
};

// Figures that are not yet known: every planned software, without any figure.
TrialFigures no_figures(const Plan& plan);

}  // namespace motley::fit
