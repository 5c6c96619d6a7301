// The fit itself. Each round simulates, makes the errors linear in the figures around their present values, and moves
// to the optimum. The linear errors of the last round also give the fits that leave runs out. Read next:
// tools/fit/results.hpp.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/fit/predictor.hpp"
#include "tools/fit/solver.hpp"

namespace motley::fit {

// A fit without some runs: without those of some sizes, or without a set.
struct LeftOut {
  std::string set;                    // the set that is left out; empty: runs are left out by size
  std::vector<std::string> ids;       // the runs that are left out
  std::vector<std::string> software;  // the software of those runs
  Eigen::VectorXd values;             // the figures fitted without them
};

class Fit {
 public:
  // `moving`: the software that is fitted. The fit prints nothing; `tell`, if given, is called with the errors at the
  // end of each round (the logarithms of predicted over measured, one for each run). Round 0 gives the errors at the
  // begin.
  using Tell = std::function<void(int round, const Eigen::VectorXd& errors)>;
  Fit(const Figures& figures, const std::vector<FitRun>& runs, std::set<std::string> moving, Tell tell = {});

  // Fits from the values `begin` on, for `rounds` rounds or until figures no longer move. If the simulation after a
  // round shows a worse objective, the round is halved, three times at most.
  void run(Predictor& predictor, const Eigen::VectorXd& begin, int rounds);

  const Eigen::VectorXd& values() const { return optimum_.values; }
  const Eigen::VectorXd& spread() const { return optimum_.spread; }
  bool moves(Eigen::Index figure) const { return pulls_.free.at(static_cast<std::size_t>(figure)); }
  const std::set<std::string>& moving() const { return moving_; }
  // The simulated errors at the end of the last round, with the derivatives at its begin.
  const LinearErrors& linear() const { return linear_; }

  // First fits that leave out whole sizes of all sets at once (the plan's folds, to which sizes are dealt in order),
  // then fits that leave out a whole set. Call it after a round.
  std::vector<LeftOut> leave_out() const;
  // The fit without all runs of that software. Call it after a round.
  LeftOut leave_out_software(const std::string& software) const;

 private:
  const Figures& figures_;
  const std::vector<FitRun>& runs_;
  std::set<std::string> moving_;
  Tell tell_;
  Pulls pulls_;
  LinearErrors linear_;
  Optimum optimum_;

  Eigen::VectorXd errors_at(Predictor& predictor, const Eigen::VectorXd& values) const;
  Eigen::MatrixXd derivatives(Predictor& predictor) const;
  LeftOut without(const std::function<bool(const FitRun&)>& left_out) const;
};

}  // namespace motley::fit
