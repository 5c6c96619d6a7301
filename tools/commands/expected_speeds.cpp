#include "tools/commands/expected_speeds.hpp"

#include <memory>
#include <string>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/explain/step_spread.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/trials.hpp"

namespace motley {

std::optional<StepSpread> expect_speeds(Prepared& prepared, std::int64_t draws) {
  Job& job = prepared.scenario.job;
  if (!has_variation(job) && draws > 0)
    throw Refusal(Exit::usage, "nothing-varies", {}, "`--draws` has nothing to draw: no speed varies",
                  "`variation: usual` in the scenario, or {chips: {sd: 0.02}}");
  if (!has_variation(job)) return std::nullopt;
  std::unique_ptr<Progress> progress;
  const auto show = [&](std::int64_t done, std::int64_t total, const std::string& what) {
    if (progress == nullptr) progress = std::make_unique<Progress>("simulation", total);
    progress->show(done, what);
  };
  Job folded = job;
  folded.fidelity.fold = true;
  ExpectedStep expected = expect_step(folded, prepared.program, simulate_trial, run_in_pool, show);
  progress.reset();
  if (draws > 0) expected.spread.drawn = drawn_steps(folded, draws, simulate_trial, run_in_pool, show);
  job.cluster = std::move(expected.cluster);
  return std::move(expected.spread);
}

}  // namespace motley
