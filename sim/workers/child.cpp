// One simulation in a child process: a pool with one task.
#include "sim/workers/child.hpp"

#include <algorithm>

namespace motley {

Trace simulate_in_child(const Job& job, const Program& program, const SimOptions& options) {
  return run_in_child([&] { return simulate(job, program, options); });
}

double simulated_step_s(const Job& job, const Program& program, const std::string& name) {
  return run_in_child([&] { return step_s(simulate(job, program)); }, name);
}

double last_end_s(const Trace& trace) {
  double end_s = 0;
  for (const TraceEvent& event : trace.events) end_s = std::max(end_s, event.end_s);
  return end_s;
}

}  // namespace motley
