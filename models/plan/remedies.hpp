// Remedies for a strategy that runs out of memory: moves (models/plan/moves.hpp) that save memory, each compiled and
// measured, not guessed. A remedy changes at most the degrees, one other thing, and recomputation. There is no search
// (that is the planner's part), and speed is not compared. Read next: models/check/check.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

struct Remedy {
  std::string change;     // as written in a scenario: "recompute: full"
  std::int64_t peak = 0;  // bytes of the chip that is fullest for its memory
  std::int64_t capacity = 0;
  bool fits() const { return peak <= capacity; }
};

// All tried remedies, the mildest changes first. Empty if none is legal.
std::vector<Remedy> remedies(const Job& job);

// Lists the remedies that fit, for a hint: "`zero: 1` fits with 61.2 GiB; ..."; or the best one if none fits.
std::string describe(const std::vector<Remedy>& tried);

}  // namespace motley
