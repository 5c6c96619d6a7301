// Predicts the steps of runs by trial figures: an interface, so that tests can replace it by a world whose figures they
// know, and the program's own implementation, which simulates. Read next: tools/commands/predict_runs.hpp.
#pragma once

#include <Eigen/Dense>
#include <string>
#include <vector>

#include "models/published/published_run.hpp"
#include "tools/commands/predict_runs.hpp"
#include "tools/fit/figures.hpp"

namespace motley::fit {

class Predictor {
 public:
  Predictor() = default;
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;
  virtual ~Predictor() = default;
  // Seconds of a step for every run that takes part, in the order of the runs.
  virtual std::vector<double> step_s(const Eigen::VectorXd& values) = 0;
};

// A table of published runs, some of which take part in the fit.
struct Table {
  std::vector<PublishedRun> rows;
  // Rows of planned sets that can be predicted, without experts.
  std::vector<const PublishedRun*> taking_part;
  std::vector<const PublishedRun*> with_experts;  // such rows with experts, which take no part
  std::vector<FitRun> runs;                       // taking_part as runs of the fit
};
// Throws Refusal("bad-csv") if no run of the table takes part, and Refusal("unknown-value") if the plan names another
// software for a set than platforms/published/unprinted.yaml does.
Table read_table(const std::string& path, const Plan& plan);
// A text that is equal for runs that are left out together: runs with the same hidden size, or with the same values in
// the columns that the plan names for their set.
std::string size_of(const PublishedRun& run, const Plan& plan);

// Predicts by simulation. Throws RunFailure if a run cannot be predicted.
class SimulatedRuns : public Predictor {
 public:
  SimulatedRuns(const Figures& figures, const std::vector<PublishedRun>& table,
                std::vector<const PublishedRun*> runs)
      : figures_(figures), table_(table), runs_(std::move(runs)) {}
  std::vector<double> step_s(const Eigen::VectorXd& values) override;

 private:
  const Figures& figures_;
  const std::vector<PublishedRun>& table_;
  std::vector<const PublishedRun*> runs_;
  PublishedRules rules_;
  CompiledRuns programs_;  // compiled with the first figures; they serve for all figures
};

// Throws RunFailure if a run was passed over.
void refuse_passed_over(const std::vector<RunOutcome>& outcomes);

// Predicts those runs by the rules as they are.
std::vector<RunOutcome> predicted(const PublishedRules& rules, const std::vector<const PublishedRun*>& runs,
                                  const std::vector<PublishedRun>& table, bool unseen);

}  // namespace motley::fit
