// Published runs, read by the rules and simulated in as many processes as there are processors: for `motley validate`,
// which tells of them, and for tools/fit, which fits figures to them. Read next: models/published_run.hpp.
#pragma once

#include <optional>
#include <vector>

#include "models/published_run.hpp"
#include "models/validation.hpp"

namespace motley {

struct PredictedRuns {
  std::vector<std::optional<Measured>> measured;  // nothing: passed over
  std::vector<RunOutcome> outcomes;               // of the same runs
};
struct PredictOptions {
  bool memory = true;  // the fullest chip's too
  bool unseen = true;  // by figures fitted without the set too, where there are some
};

// `all`: the table that the chosen runs stand in. Nothing is predicted yet.
PredictedRuns read_runs(const PublishedRules& rules, const std::vector<const PublishedRun*>& chosen,
                        const std::vector<PublishedRun>& all);

// Fills in the outcomes of the runs that are not passed over; what cannot be compiled or simulated is, from here on.
void predict_all(const PredictOptions& options, PredictedRuns& runs);

}  // namespace motley
