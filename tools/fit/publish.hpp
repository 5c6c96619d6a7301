// From figures at their optimum to what ships of them: fits that leave runs out, intervals of how far those runs lay
// from predictions without them, and the files. Runs are predicted by whatever it is given, so that tests need not
// simulate. Read next: tools/fit/results.hpp, models/published/published_run.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/fit/results.hpp"

namespace motley::fit {

using PredictRuns = std::function<std::vector<RunOutcome>(
    const PublishedRules& rules, const std::vector<const PublishedRun*>& runs, bool unseen)>;

struct Publication {
  // Of platforms/software/, of the software that moved; unseen.yaml; and all of platforms/published/left_out/.
  Files files;
  ErrorTable by_size, by_set;          // of runs that were left out so
  std::vector<std::string> intervals;  // the lines of unseen.yaml
};
// `shipped`: the data folder, of which other software's files are read and nothing is written.
Publication publish(const Figures& figures, const Fit& fit, const Table& table, const PredictRuns& predict,
                    const std::string& shipped, const std::string& month);

// Into the data folder, in the place of what stands there; what is no longer in left_out/ goes.
void replace_shipped(const Files& files, const std::string& shipped);

}  // namespace motley::fit
