// What a step takes at least: a max-plus recurrence over the folded Program (Baccelli, Cohen, Olsder & Quadrat,
// "Synchronization and Linearity", 1992). An instruction begins when those before it in its stream, and what it waits
// for, have ended; it takes what the Sim world would let it take if its lanes shared their links with nobody but those
// of their own class. No link, no flow and no event is simulated: the order in which instructions end is fixed by the
// Program alone, so one pass over it is enough. As everything that the Sim world adds (links that are shared with
// others, computes that communication slows) only delays, no simulation of the Program is shorter. Read next:
// sim/fold/traffic.hpp, sim/simulate.hpp.
#pragma once

#include <limits>

#include "models/cost/compute_cost.hpp"
#include "models/scenario/job.hpp"
#include "sim/fold/traffic.hpp"

namespace motley {

struct Recurrence {
  double step_s = 0;  // no simulation of the step is shorter
  int rounds = 0;     // how many steps were followed, where steps overlap; else 1
};

// The Program must be checked, and all that it computes priced. `folded` and `costs` are those of the simulation. It
// may stop, with a bound of less, once the step takes `enough_s`.
// Assumes: where steps overlap, simulated steps become alike. Of steps that never do, a simulation takes a mean over
// some of them, which the bound can pass by as much as their last ranks drift apart.
Recurrence recur(const Job& job, const Program& program, const FoldedFabric& folded, CostTable& costs,
                 double enough_s = std::numeric_limits<double>::infinity());

}  // namespace motley
