// A layout for a scenario that has none yet: one that fits, found by closed forms in a moment, and no search for the
// fastest. `motley new` writes it. Read next: models/plan/uniform_search.hpp; planner.hpp, which searches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "models/plan/uniform_search.hpp"

namespace motley {

// Equal replicas of equal stages under 1F1B, with rows of norms divided where layers are cut.
struct FirstLayout {
  UniformDegrees degrees;
  int zero = 0;
  std::int64_t expert_parallel = 1;
};

// The first layout for which `stands` is true, of those that closed forms find fast: with the optimizer's state
// divided; for models with experts, with these over ranks, too; then those that save most memory, with gradients and
// parameters divided. Nothing: none of them stands. `job` has no strategy of its own.
// Assumes: a layout whose estimate leaves out transfers between stages and the reduction of gradients is good enough to
// begin with.
std::optional<FirstLayout> find_first_layout(const Job& job,
                                             const std::function<bool(const FirstLayout&)>& stands);

}  // namespace motley
