// From a scenario to what a World made of it: what simulate, train and compare share. It wires sim/ and hw/
// together and prints nothing. Read next: sim/world.hpp, hw/train.hpp.
#pragma once

#include <vector>

#include "models/check.hpp"
#include "models/scenario.hpp"

namespace motley {

// A scenario, compiled and proved.
struct Prepared {
  Scenario scenario;
  Program program;
  std::vector<StageMemory> memory;
};
Prepared prepare(Scenario scenario);

}  // namespace motley
