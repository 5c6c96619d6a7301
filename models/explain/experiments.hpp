// Jobs that explain changes and simulates, to see the effect of the change. Experiments::run() starts every
// simulation of explain. Read next: models/explain/explain.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// Runs a Program in virtual time; it may be called any number of times. Throws what a World throws.
using Simulation = std::function<Trace(const Job&, const Program&)>;

// Called before each simulation with the number that are done, the number of all, and a description of the next.
using ExperimentProgress =
    std::function<void(std::int64_t done, std::int64_t total, const std::string& what)>;

// The result of changing, compiling, checking and simulating a job.
struct Trial {
  double step_s = 0;    // 0: the job is refused
  std::string refused;  // the first line of the Refusal; empty: the job was simulated
  bool stands() const { return refused.empty(); }
};

// Runs trial(0), ..., trial(count - 1), one after the other or several at once in processes of their own, and returns
// their results in that order. Calls `progress` with a trial and the number of trials that have ended: when the trial
// begins, and perhaps again when it ends. Throws what the trials throw.
using TrialRunner = std::function<std::vector<Trial>(
    std::size_t count, const std::function<Trial(std::size_t trial)>& trial,
    const std::function<void(std::size_t trial, std::size_t ended)>& progress)>;
std::vector<Trial> run_one_by_one(std::size_t count, const std::function<Trial(std::size_t trial)>& trial,
                                  const std::function<void(std::size_t trial, std::size_t ended)>& progress);

struct Experiment {
  std::string what;  // description for people who watch the progress
  // Makes the changed job. If it throws a Refusal, that is the result of the experiment.
  std::function<Job()> job;
  // True: the changed job is known to be legal and to fit, so it is not checked again, and a Refusal is thrown on.
  bool surely_stands = false;
};

class Experiments {
 public:
  // `total`: number of experiments in all calls of run() together. `progress` may be empty.
  Experiments(const Simulation& simulation, const TrialRunner& runner, const ExperimentProgress& progress,
              std::size_t total)
      : simulation_(simulation),
        runner_(runner),
        progress_(progress),
        total_(static_cast<std::int64_t>(total)) {}

  // Returns results in the order of the list. Throws every exception that is not a Refusal of a changed job.
  std::vector<Trial> run(const std::vector<Experiment>& list);

 private:
  Trial run(const Experiment& experiment) const;

  const Simulation& simulation_;
  const TrialRunner& runner_;
  const ExperimentProgress& progress_;
  std::int64_t done_ = 0, total_;
};

// Tries one job without reporting progress.
Trial try_job(const Job& job, const Simulation& simulation);

}  // namespace motley
