// Compiles and checks a scenario, which every command does before it runs a World. The refusal of a strategy that
// does not fit proposes neighbouring strategies that do. Read next: models/compile/compile.hpp,
// models/check/check.hpp.
#pragma once

#include <vector>

#include "models/check/check.hpp"
#include "models/scenario/scenario.hpp"

namespace motley {

struct Prepared {
  Scenario scenario;
  Program program;
  std::vector<StageMemory> memory;
};
Prepared prepare(Scenario scenario);
// The same, but the refusal of a strategy that does not fit proposes nothing: for one of many scenarios.
Prepared prepare_plainly(Scenario scenario);

// Call compile() and check() for the scenario's job; refusals (out of memory, unreachable ranks) point into its file.
Program compile(const Scenario& scenario);
std::vector<StageMemory> check(const Program& program, const Scenario& scenario);

}  // namespace motley
