// How much longer the wires of a collective are busy if all groups that do the same do it together. Private to
// sim/fold/fold.cpp. Read next: sim/fold/fold.hpp.
#pragma once

#include "sim/fold/fold.hpp"

namespace motley {

// Fills Folding::ring_crowding, Folding::pair_crowding and PlannedLanes::crowding, which the level `fluid` reads, for
// the groups that stand for their class.
void find_crowding(const Job& job, const Program& program, CostTable& costs, Folding& folding);

}  // namespace motley
