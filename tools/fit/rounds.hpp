// The fit itself: simulations, made linear in the figures where they are, and the optimum of that, round after round;
// and what the last round says of fits that leave runs out. Read next: tools/fit/results.hpp.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/fit/predictor.hpp"
#include "tools/fit/solver.hpp"

namespace motley::fit {

// What stays out of a fit: the runs of some sizes, or a set.
struct LeftOut {
  std::string set;                    // empty: by sizes
  std::vector<std::string> ids;       // by sizes: the runs that stay out
  std::vector<std::string> software;  // that those are of
  Eigen::VectorXd values;             // of the fit without them
};

class Fit {
 public:
  // `moving`: the software that is fitted. Prints nothing; `tell`, if given, is called with the errors at which each
  // round ends (the logarithms of predicted over measured, by run); round 0 is where the first begins.
  using Tell = std::function<void(int round, const Eigen::VectorXd& errors)>;
  Fit(const Figures& figures, const std::vector<FitRun>& runs, std::set<std::string> moving, Tell tell = {});

  // Goes on from those values: so many rounds, or fewer when figures no longer move. Where a round made things worse
  // by simulation, it goes back half of it, and again, three times at most.
  void run(Predictor& predictor, const Eigen::VectorXd& begin, int rounds);

  const Eigen::VectorXd& values() const { return optimum_.values; }
  const Eigen::VectorXd& spread() const { return optimum_.spread; }
  bool moves(Eigen::Index figure) const { return pulls_.free.at(static_cast<std::size_t>(figure)); }
  const std::set<std::string>& moving() const { return moving_; }
  // Errors where the last round ended, by simulation, with the derivatives from where it began.
  const LinearErrors& linear() const { return linear_; }

  // Whole sizes out of every set at once, dealt to so many folds in their order, then whole sets. After a round.
  std::vector<LeftOut> leave_out() const;

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
