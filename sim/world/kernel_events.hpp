// The kernels inside the computes of a simulated step, once the computes' own times are known. Read next:
// models/trace/trace.hpp, sim/world/durations.hpp.
#pragma once

#include <vector>

#include "models/trace/trace.hpp"
#include "sim/world/durations.hpp"

namespace motley {

// The kernels of all computes among the events, in their order. Assumes: what slows a modelled compute as a whole
// (transfers beside it, a slow chip, a slower member of its group) slows all its kernels alike.
std::vector<KernelEvent> kernel_events(const Program& program, const std::vector<TraceEvent>& events,
                                       Durations& durations);

// How many they would be, at most.
std::int64_t count_kernels(const Program& program, const std::vector<TraceEvent>& events);

}  // namespace motley
