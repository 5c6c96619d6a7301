// The times of a trace whose ranks have run on several hosts, by one clock. Read next: hw/launch/clock.hpp.
#pragma once

#include "hw/launch/clock.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// Each rank has noted times of its own clock since its zero, but for those when another rank was ready, which are that
// rank's. Afterwards all are times of the clock that they share, in each rank's own order, and the trace says how far
// they may be off. Ranks of the host of rank 0 keep their times.
void share_times(const IdTable<Rank, SharedClock>& clocks, Trace& trace);

}  // namespace motley
