#include "sim/simulate.hpp"

#include "sim/world/sim_world.hpp"

namespace motley {

Trace simulate(const Job& job, const Program& program, const SimOptions& options) {
  Durations durations(job, program, options);
  return SimWorld(job, program, options, durations).run();
}

}  // namespace motley
