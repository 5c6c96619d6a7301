// Published runs, read by the rules and simulated in as many processes as there are processors: for `motley validate`,
// which tells of them, and for tools/fit, which fits figures to them. Read next: models/published_run.hpp.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/published_run.hpp"
#include "models/validation.hpp"

namespace motley {

struct PredictedRuns {
  std::vector<std::optional<Measured>> measured;  // nothing: passed over
  std::vector<RunOutcome> outcomes;               // of the same runs
  // Of the same runs, or of none; one that is not there is compiled when its run is predicted.
  std::vector<std::shared_ptr<const Program>> programs;
};
struct PredictOptions {
  bool memory = true;  // the fullest chip's too
  bool unseen = true;  // by figures fitted without the set too, where there are some
};

// `all`: the table that the chosen runs stand in. Nothing is predicted yet.
PredictedRuns read_runs(const PublishedRules& rules, const std::vector<const PublishedRun*>& chosen,
                        const std::vector<PublishedRun>& all);

// Their programs, in as many threads as there are processors, for runs that are predicted by several figures of the
// same chips. Assumes: a program is the same whatever the figures, if none is 0; where its schedule is filled in by how
// long passes take, as those of zero-bubble pipelines are, it is not, and there is none here.
std::vector<std::shared_ptr<const Program>> compile_all(const PredictedRuns& runs);

// Fills in the outcomes of the runs that are not passed over; what cannot be compiled or simulated is, from here on.
void predict_all(const PredictOptions& options, PredictedRuns& runs);

}  // namespace motley
