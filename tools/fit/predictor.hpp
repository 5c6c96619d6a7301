// Steps of runs by figures that are tried: an interface, so that tests can put a world in its place whose figures they
// know; and the program's own, which simulates. Read next: tools/commands/predict_runs.hpp.
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
  // Seconds of a step of every run that takes part, in their order.
  virtual std::vector<double> step_s(const Eigen::VectorXd& values) = 0;
};

// A table of published runs, of which some take part.
struct Table {
  std::vector<PublishedRun> rows;
  std::vector<const PublishedRun*> taking_part;  // of sets that are planned, predicted, without experts
  std::vector<const PublishedRun*> with_experts;
  std::vector<FitRun> runs;  // those that take part
};
// Refuses ("bad-csv") a table of which no run takes part, and ("unknown-value") a plan that has a set tell of other
// software than platforms/published/unprinted.yaml does.
Table read_table(const std::string& path, const Plan& plan);
// What a run is left out with: those of its hidden size, or of the same cells of the columns that the plan names.
std::string size_of(const PublishedRun& run, const Plan& plan);

// Throws RunFailure where a run cannot be predicted.
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
  CompiledRuns programs_;  // by the first figures, which serve for all
};

// Throws RunFailure where a run was passed over.
void refuse_passed_over(const std::vector<RunOutcome>& outcomes);

// Those runs by the rules as they are.
std::vector<RunOutcome> predicted(const PublishedRules& rules, const std::vector<const PublishedRun*>& runs,
                                  const std::vector<PublishedRun>& table, bool unseen);

}  // namespace motley::fit
