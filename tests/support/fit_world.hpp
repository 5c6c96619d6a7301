// Runs and figures for tests of the fit: a world that predicts by powers of the figures, so that derivatives are exact
// and the figures that made its runs are known.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tools/fit/rounds.hpp"

namespace motley::fit {

inline std::vector<FitRun> runs_of(const std::string& set, const std::string& software,
                                   const std::string& chip, int count, int sizes = 4) {
  std::vector<FitRun> runs;
  for (int i = 0; i < count; ++i)
    runs.push_back({set + "-" + std::to_string(1000 + i), set, software, chip,
                    "hidden " + std::to_string(1024 * (1 + i % sizes)), 1});
  return runs;
}

// Runs of three generations of software, one of them on two chips.
inline std::vector<FitRun> some_runs() {
  std::vector<FitRun> runs = runs_of("zb", "megatron-2023", "a100-80gb-sxm", 60);
  for (const auto& more :
       {runs_of("dgxc", "nemo-2024", "h100-80gb-sxm", 60), runs_of("nemo", "nemo-2024", "gb200", 40),
        runs_of("mpt", "llm-foundry-2024", "a100-40gb-sxm", 60)})
    runs.insert(runs.end(), more.begin(), more.end());
  return runs;
}

class PowerWorld : public Predictor {
 public:
  PowerWorld(const Figures& figures, std::vector<FitRun>& runs, const Eigen::VectorXd& truth)
      : powers_(Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(runs.size()), figures.count())) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> power(-0.5, 0.5);
    for (std::size_t run = 0; run < runs.size(); ++run)
      for (const FigurePlan& figure : figures.plan().figures)
        if (const Eigen::Index at = figures.index(runs[run], figure.kind); at >= 0)
          powers_(static_cast<Eigen::Index>(run), at) = power(random);
    const std::vector<double> measured = step_s(truth);
    for (std::size_t run = 0; run < runs.size(); ++run) runs[run].measured_s = measured[run];
    asked_ = 0;
  }
  std::vector<double> step_s(const Eigen::VectorXd& values) override {
    ++asked_;
    const Eigen::VectorXd steps = (powers_ * values).array().exp();
    return {steps.begin(), steps.end()};
  }
  int asked() const { return asked_; }

 private:
  Eigen::MatrixXd powers_;  // (runs, figures)
  int asked_ = 0;
};

inline Eigen::VectorXd random_vector(Eigen::Index n, double scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Eigen::VectorXd values(n);
  for (double& value : values) value = scale * normal(random);
  return values;
}

}  // namespace motley::fit
