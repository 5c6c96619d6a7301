// What tests of plans share: a judge that simulates, and random jobs that closed forms can lay out.
#pragma once

#include <cstddef>
#include <vector>

#include "models/explain/experiments.hpp"
#include "models/plan/planner.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/random_jobs.hpp"

namespace motley::tests {

// Simulates jobs one after the other, each in a child, and counts them.
class CountingJudge {
 public:
  std::vector<Verdict> operator()(const std::vector<Job>& jobs) {
    std::vector<Verdict> verdicts;
    for (const Job& job : jobs) {
      ++judged;
      const Trial trial = try_job(
          job, [](const Job& tried, const Program& program) { return simulate_in_child(tried, program); });
      verdicts.push_back({trial.step_s, trial.refused});
    }
    return verdicts;
  }
  std::size_t judged = 0;
};

// A job whose stages the closed forms can lay out: without modules that predict further tokens.
inline Job plannable_job(unsigned seed) {
  Job job = any_job(seed);
  while (job.transformer.trained_extra() > 0) job = any_job(seed += 1000);
  job.fidelity.fold = true;
  return job;
}

}  // namespace motley::tests
