// Compiles, checks and simulates changed jobs, one after the other.
#include "models/explain/experiments.hpp"

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/explain/path_parts.hpp"

namespace motley {

std::vector<Trial> Experiments::run(const std::vector<Experiment>& list) {
  std::vector<Trial> trials;
  for (const Experiment& experiment : list) {
    if (progress_) progress_(done_, total_, experiment.what);
    ++done_;
    trials.push_back(run(experiment));
  }
  return trials;
}

Trial Experiments::run(const Experiment& experiment) const {
  Trial trial;
  try {
    const Job job = experiment.job();
    if (!experiment.surely_stands) validate(job.transformer, job.train, job.strategy);
    const Program program = compile(job);
    if (!experiment.surely_stands) check(program, job.cluster, job.train.fragmentation);
    trial.step_s = duration_s(simulation_(job, program));
  } catch (const Refusal& refusal) {
    const bool is_of_the_job = refusal.exit_code() == Exit::infeasible || refusal.exit_code() == Exit::usage;
    if (experiment.surely_stands || !is_of_the_job) throw;
    trial.refused = refusal.message();
  }
  return trial;
}

Trial try_job(const Job& job, const Simulation& simulation) {
  const ExperimentProgress unwatched;
  return Experiments(simulation, unwatched, 1).run({{"", [&] { return job; }, false}}).front();
}

}  // namespace motley
