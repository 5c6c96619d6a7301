#include "hw/world/shared_times.hpp"

#include <algorithm>

namespace motley {

void share_times(const IdTable<Rank, SharedClock>& clocks, Trace& trace) {
  trace.clock_uncertainty_s = 0;
  for (const SharedClock& clock : clocks)
    trace.clock_uncertainty_s = std::max(trace.clock_uncertainty_s, clock.uncertainty_s());
  if (trace.clock_uncertainty_s == 0) return;
  for (TraceEvent& event : trace.events) {
    const SharedClock& mine = clocks[event.step.rank];
    const SharedClock& other =
        event.waited == Waited::peer && event.waited_rank ? clocks[*event.waited_rank] : mine;
    event.free_s = mine.shared_s(event.free_s);
    event.begin_s = mine.shared_s(event.begin_s);
    event.end_s = mine.shared_s(event.end_s);
    event.matched_s = std::clamp(other.shared_s(event.matched_s), event.begin_s, event.end_s);
  }
  for (KernelEvent& kernel : trace.kernels) {
    kernel.begin_s = clocks[kernel.step.rank].shared_s(kernel.begin_s);
    kernel.end_s = clocks[kernel.step.rank].shared_s(kernel.end_s);
  }
}

}  // namespace motley
