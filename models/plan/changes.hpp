// The moves that `motley explain` tries: what could be done otherwise on the same chips, one thing at a time. A change
// may turn out not to fit or not to be legal; only compiling, checking and simulating it says. Read next:
// models/plan/moves.hpp, models/explain/explain.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/plan/moves.hpp"
#include "models/report/report.hpp"

namespace motley {

struct Change {
  std::string what;  // as the scenario's keys say it: "recompute: none"; all three degrees where one changes
  Move move;
};

// The ranks and the batch of a step stay as they are, so that steps can be compared. `report` is the job's: it says
// which stages wait.
std::vector<Change> changes(const Job& job, const Report& report);

}  // namespace motley
