// A scenario, compiled and proved: what every command does before it runs a World. A strategy that does not fit is
// refused with the neighbouring ones that would. Read next: models/compile/compile.hpp, models/check/check.hpp.
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

// compile() and check() of the scenario's job, with refusals (out of memory, unreachable ranks) that point into
// its file.
Program compile(const Scenario& scenario);
std::vector<StageMemory> check(const Program& program, const Scenario& scenario);

}  // namespace motley
