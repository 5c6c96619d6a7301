// The algorithms by which ranks do collectives for real: those that the simulation of the same scenario has. Read next:
// models/cost/compute_cost.hpp.
#pragma once

#include "hw/world/peers.hpp"
#include "models/plan/prepare.hpp"

namespace motley {

// Keeps a reference to its argument.
GroupAlgorithms algorithms_as_simulated(const Prepared& prepared);

}  // namespace motley
