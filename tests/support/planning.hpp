// What tests of plans share: a judge that simulates, and random jobs that closed forms can lay out.
#pragma once

#include <cstddef>
#include <vector>

#include "models/explain/plan_judge.hpp"
#include "models/plan/planner.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/random_jobs.hpp"

namespace motley::tests {

// Simulates jobs one after the other, each in a child, and fills in bills if they are needed.
inline Judge simulating_judge(bool needs_bill) {
  return [needs_bill](const std::vector<Job>& jobs) {
    std::vector<Verdict> verdicts;
    for (const Job& job : jobs)
      verdicts.push_back(judge_job(
          job, [](const Job& tried, const Program& program) { return simulate_in_child(tried, program); },
          needs_bill));
    return verdicts;
  };
}

// Simulates what the recurrence does not rule out.
inline std::vector<Verdict> judge_below(const std::vector<Job>& jobs, double enough_s) {
  const BoundedSimulation simulation = [enough_s](const Job& job, const Program& program) -> TraceOrBound {
    const double least_s = recur(job, program).step_s;
    if (least_s >= enough_s) return least_s;
    return simulate_in_child(job, program);
  };
  std::vector<Verdict> verdicts;
  for (const Job& job : jobs) verdicts.push_back(judge_job(job, simulation));
  return verdicts;
}

// The same, without bills, and counts the jobs.
class CountingJudge {
 public:
  std::vector<Verdict> operator()(const std::vector<Job>& jobs) {
    judged += jobs.size();
    return simulating_judge(false)(jobs);
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
