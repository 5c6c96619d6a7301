// Published runs, read by the rules and simulated in a pool of processes: for `motley validate`, which tells of them,
// and for tools/fit, which fits figures to them. Read next: models/published/published_run.hpp, sim/workers/pool.hpp.
#pragma once

#include <memory>
#include <vector>

#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"

namespace motley {

// Some rows of a table, and what they are read by. It owns nothing.
struct ChosenRuns {
  const PublishedRules& rules;
  const std::vector<const PublishedRun*>& runs;
  const std::vector<PublishedRun>& table;  // other rows of it may print what a chosen one does not
};

// Programs of chosen runs, in their order; null: to be compiled when the run is predicted. No vector: all are.
using CompiledRuns = std::vector<std::shared_ptr<const Program>>;

struct PredictOptions {
  bool memory = true;  // the fullest chip's too
  bool unseen = true;  // by figures fitted without the set too, where there are some
  const CompiledRuns* compiled = nullptr;
};

// The outcomes of the chosen runs, in their order. A run that cannot be read, compiled or simulated is passed over,
// with the reason; a table that is wrong is refused before anything is simulated.
std::vector<RunOutcome> predict_runs(const ChosenRuns& chosen, const PredictOptions& options = {});

// For runs that are predicted by several figures of the same chips. Assumes: a program is the same whatever the
// figures, if none is 0; where its schedule is filled in by how long passes take, as those of zero-bubble pipelines
// are, it is not, and the program is null.
CompiledRuns compile_runs(const ChosenRuns& chosen);

}  // namespace motley
