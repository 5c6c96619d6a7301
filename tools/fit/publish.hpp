// From figures at their optimum to the files that ship: fits that leave runs out, intervals for how far those runs lie
// from predictions without them, and the files. The caller passes the function that predicts runs, so that tests need
// not simulate. Read next: tools/fit/results.hpp, models/published/published_run.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/fit/results.hpp"

namespace motley::fit {

using PredictRuns = std::function<std::vector<RunOutcome>(
    const PublishedRules& rules, const std::vector<const PublishedRun*>& runs, bool unseen)>;

struct Publication {
  // The files of platforms/software/ for the software that was fitted and for the usual one, unseen.yaml, and all of
  // platforms/published/left_out/.
  Files files;
  ErrorTable by_size, by_set;          // errors of runs that were left out by size, and by set
  ErrorTable unnamed;                  // errors of runs whose software was left out and is not named
  std::vector<std::string> intervals;  // the lines of unseen.yaml
};
// `shipped`: the data folder. The files of other software are read from it; nothing is written to it.
Publication publish(const Figures& figures, const Fit& fit, const Table& table, const PredictRuns& predict,
                    const std::string& shipped, const std::string& month);

// Writes the files into the data folder and removes files of left_out/ that are not among them.
void replace_shipped(const Files& files, const std::string& shipped);

}  // namespace motley::fit
