// The moves that `motley explain` tries: alternatives on the same chips, one thing at a time. A change may prove not
// to fit or not to be legal; only compiling, checking and simulating it tells. Read next: models/plan/moves.hpp,
// models/explain/explain.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/plan/moves.hpp"
#include "models/report/report.hpp"

namespace motley {

struct Change {
  std::string what;  // as the scenario's keys: "recompute: none"; all three degrees where one changes
  Move move;
};

// Lists the changes. They keep the ranks and the batch of a step, so that steps can be compared. `report` is that of
// the job: it tells which stages wait.
std::vector<Change> changes(const Job& job, const Report& report);
// The changes, at most `most` of them, that may shorten what the step loses most to (bound_by()). They are of as many
// kinds as possible.
std::vector<Change> changes_against_loss(const Job& job, const Report& report, std::size_t most);

}  // namespace motley
