// What would make a strategy that runs out of memory fit: moves (models/plan/moves.hpp) that save memory, each
// compiled and measured, not guessed. A remedy changes at most the degrees, one thing besides, and recomputation.
// Nothing is searched (that is the planner's), and nothing is said of speed. Read next: models/check/check.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

struct Remedy {
  std::string change;     // as it is written in a scenario: "recompute: full"
  std::int64_t peak = 0;  // bytes, of the fullest stage against its chip
  std::int64_t capacity = 0;
  bool fits() const { return peak <= capacity; }
};

// Everything tried, in order: the mildest changes first. Empty where none is legal.
std::vector<Remedy> remedies(const Job& job);

// Those that fit, for a hint: "`zero: 1` fits with 61.2 GiB; ..."; or the best that there is.
std::string describe(const std::vector<Remedy>& tried);

}  // namespace motley
