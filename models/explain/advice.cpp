#include "models/explain/advice.hpp"

#include "models/plan/changes.hpp"

namespace motley {
namespace {

constexpr double kWorthIt = 0.0005;  // share of the step: less rounds to 0.0 %

}  // namespace

Advice advise(const Job& job, const Report& report, const Simulation& simulation,
              const AdviceOptions& options) {
  const std::vector<Change> changes = changes_against_loss(job, report, options.most);
  std::vector<Experiment> list;
  for (const Change& change : changes)
    list.push_back({change.what, [&job, &change] { return moved(job, change.move); }, false});
  const ExperimentProgress unwatched;
  const std::vector<Trial> trials =
      Experiments(simulation, options.run_trials, unwatched, list.size()).run(list);
  Advice advice;
  advice.step_s = report.iteration_s;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (!trials[i].stands()) continue;
    ++advice.simulated;
    if (trials[i].step_s >= advice.step_s || trials[i].step_s > (1 - kWorthIt) * report.iteration_s) continue;
    advice.change = changes[i].what;
    advice.step_s = trials[i].step_s;
  }
  return advice;
}

}  // namespace motley
