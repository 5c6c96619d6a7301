// Published runs, read by the rules and simulated in a pool of processes: for `motley validate`, which reports them,
// and for tools/fit, which fits figures to them. Read next: models/published/published_run.hpp, sim/workers/pool.hpp.
#pragma once

#include <memory>
#include <vector>

#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"

namespace motley {

// Some rows of a table, and the rules by which they are read. It owns nothing.
struct ChosenRuns {
  const PublishedRules& rules;
  const std::vector<const PublishedRun*>& runs;
  const std::vector<PublishedRun>& table;  // all rows: one may print what a chosen row leaves out
};

// The Programs of chosen runs, in their order. Null: the Program is compiled when the run is predicted.
using CompiledRuns = std::vector<std::shared_ptr<const Program>>;

struct PredictOptions {
  bool memory = true;  // also predict the memory of the fullest chip
  bool unseen = true;  // also predict by figures fitted without the run's set, if there are any
  const CompiledRuns* compiled = nullptr;  // null: every Program is compiled
};

// The outcomes of the chosen runs, in their order. A run that cannot be read, compiled or simulated is passed over,
// with the reason; a table that is wrong is refused before anything is simulated.
std::vector<RunOutcome> predict_runs(const ChosenRuns& chosen, const PredictOptions& options = {});

// Compiles runs once that are then predicted with several values of the same chips' figures. A Program is null if its
// schedule depends on how long passes take, as in zero-bubble pipelines.
// Assumes: every other Program is the same whatever the figures are, as long as none of them is 0.
CompiledRuns compile_runs(const ChosenRuns& chosen);

}  // namespace motley
