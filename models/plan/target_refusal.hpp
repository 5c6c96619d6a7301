// Says why a plan misses the targets of its request. Read next: models/plan/goal.hpp.
#pragma once

#include "models/plan/planner.hpp"

namespace motley {

// Throws Refusal("misses-target"): by how much the best strategy that was tried misses the targets, and whether a
// bound proves that every strategy does.
[[noreturn]] void refuse_target(const Plan& plan);

}  // namespace motley
