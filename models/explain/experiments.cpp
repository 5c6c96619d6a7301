// Compiles, checks and simulates changed jobs.
#include "models/explain/experiments.hpp"

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/explain/path_parts.hpp"

namespace motley {

std::vector<Trial> run_one_by_one(std::size_t count, const std::function<Trial(std::size_t trial)>& trial,
                                  const std::function<void(std::size_t trial, std::size_t ended)>& progress) {
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < count; ++i) {
    progress(i, i);
    trials.push_back(trial(i));
  }
  return trials;
}

std::vector<Trial> Experiments::run(const std::vector<Experiment>& list) {
  const auto show = [&](std::size_t i, std::size_t ended) {
    if (progress_) progress_(done_ + static_cast<std::int64_t>(ended), total_, list[i].what);
  };
  std::vector<Trial> trials = runner_(
      list.size(), [&](std::size_t i) { return run(list[i]); }, show);
  done_ += static_cast<std::int64_t>(list.size());
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
    const bool is_of_the_job = refusal.exit_code() == Exit::infeasible ||
                               refusal.exit_code() == Exit::usage || refusal.kind() == "deadlock" ||
                               refusal.kind() == "outside-measured";
    if (experiment.surely_stands || !is_of_the_job) throw;
    const std::string message = refusal.message();
    trial.refused = message.substr(0, message.find('\n'));
  }
  return trial;
}

Trial try_job(const Job& job, const Simulation& simulation) {
  const ExperimentProgress unwatched;
  const TrialRunner runner = run_one_by_one;
  return Experiments(simulation, runner, unwatched, 1).run({{"", [&] { return job; }, false}}).front();
}

}  // namespace motley
