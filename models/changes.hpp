// What of a job could be done otherwise on the same chips, one thing at a time: the list that `motley explain` tries. A
// change may turn out not to fit or not to stand; only compiling, checking and simulating it says. It searches nothing.
// Read next: models/explain.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/compile.hpp"
#include "models/report.hpp"

namespace motley {

struct Change {
  std::string what;  // as the scenario's key says it: "recompute: none"
  std::function<void(Job&)> make;
};

// The batch of a step stays as it is, so that steps can be compared. `report` says which stages wait.
std::vector<Change> changes(const Job& job, const Report& report);

}  // namespace motley
