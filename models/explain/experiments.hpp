// Jobs that explain changes and simulates, to see what the change brings. Every simulation that explain asks for is
// asked for by Experiments::run(). Read next: models/explain/explain.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// Runs a Program in virtual time, as often as asked. Throws what a World throws.
using Simulation = std::function<Trace(const Job&, const Program&)>;

// Told before each simulation: how many are done, of how many, and what comes next.
using ExperimentProgress =
    std::function<void(std::int64_t done, std::int64_t total, const std::string& what)>;

// What became of a job that was changed, compiled, checked and simulated.
struct Trial {
  double step_s = 0;    // 0: the job is refused
  std::string refused;  // why: the first line of the Refusal
  bool stands() const { return refused.empty(); }
};

struct Experiment {
  std::string what;  // for those who watch
  // Makes the changed job. A Refusal that it throws is what becomes of the experiment.
  std::function<Job()> job;
  // The changed job is known to be legal and to fit: it is not checked again, and a Refusal is thrown on.
  bool surely_stands = false;
};

class Experiments {
 public:
  // `total`: as many as run() will be given, all calls together. `progress` may be empty.
  Experiments(const Simulation& simulation, const ExperimentProgress& progress, std::size_t total)
      : simulation_(simulation), progress_(progress), total_(static_cast<std::int64_t>(total)) {}

  // In the order of the list. Throws what is no Refusal of a changed job itself.
  std::vector<Trial> run(const std::vector<Experiment>& list);

 private:
  Trial run(const Experiment& experiment) const;

  const Simulation& simulation_;
  const ExperimentProgress& progress_;
  std::int64_t done_ = 0, total_;
};

// One job that nobody watches.
Trial try_job(const Job& job, const Simulation& simulation);

}  // namespace motley
