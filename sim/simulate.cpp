#include "sim/simulate.hpp"

#include "sim/world/sim_world.hpp"

namespace motley {

Trace simulate(const Job& job, const Program& program, const SimOptions& options) {
  Durations durations(job, program, options);
  return SimWorld(job, program, options, durations).run();
}

MemoryNeed memory_need(const Job& job, const Program& program) {
  CostTable costs(program, job.cluster);
  return memory_need(job, program, fold(job, program, costs, {job.fidelity.fold.value_or(false), {}}));
}

}  // namespace motley
