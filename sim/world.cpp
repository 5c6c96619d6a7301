#include "sim/world.hpp"

#include "sim/sim_world.hpp"

namespace motley {

Trace simulate(const Job& job, const Program& program, const SimOptions& options) {
  Durations durations(job, program, options);
  simgrid::s4u::Engine& engine = make_engine();
  SimWorld world(job, program, options, durations, engine);
  return world.run();
}

}  // namespace motley
