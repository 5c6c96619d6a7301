// The figures that are fitted, one for each software, chip and kind, their log-normal priors, and their text: that of a
// trial is that of the files, platforms/software/, so that the two cannot differ. Values are logarithms of seconds or
// of plain numbers everywhere. Read next: tools/fit/solver.hpp.
#pragma once

#include <Eigen/Dense>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/published/published_run.hpp"
#include "tools/fit/plan.hpp"

namespace motley::fit {

// A published run that takes part.
struct FitRun {
  std::string id, set, software, chip;
  std::string size;  // what it has in common with the runs that are left out with it
  double measured_s = 0;
};

struct FigureName {
  std::string software;
  std::string chip;  // empty: of the network, on any
  std::string kind;
  bool operator==(const FigureName&) const = default;
};

struct Prior {
  Eigen::VectorXd mean;
  Eigen::MatrixXd precision;  // the inverse of their covariance
};

class Figures {
 public:
  // Those that the runs' software and chips have.
  Figures(Plan plan, const std::vector<FitRun>& runs);

  const Plan& plan() const { return plan_; }
  const std::vector<FigureName>& names() const { return names_; }
  Eigen::Index count() const { return prior_.mean.size(); }
  const Prior& prior() const { return prior_; }
  std::vector<std::string> software() const;  // by name
  // -1: there is no such figure.
  Eigen::Index index(const FigureName& name) const;
  // Of the run's software on its chip.
  Eigen::Index index(const FitRun& run, const std::string& kind) const;

  // As files of that folder have them; what none has is at its prior. Files that are not there have none.
  Eigen::VectorXd values_in(const std::string& folder) const;

  using SourceOf = std::function<std::string(Eigen::Index)>;
  // What a file of platforms/software/ says but for its interval; each line begins with the indent.
  std::string text(const std::string& software, const Eigen::VectorXd& values, const SourceOf& source_of,
                   const std::string& indent = "") const;
  // The same text, read.
  TrialFigures trial(const Eigen::VectorXd& values) const;

 private:
  Plan plan_;
  std::vector<FigureName> names_;
  Prior prior_;

  void add_prior(const std::vector<double>& mean, const std::vector<double>& spread);
};

// Of figures that are not known yet: of every software that is planned, nothing.
TrialFigures no_figures(const Plan& plan);

}  // namespace motley::fit
