#include "sim/simulate.hpp"

#include "sim/world/sim_world.hpp"

namespace motley {

Trace simulate(const Job& job, const Program& program, const SimOptions& options) {
  Durations durations(job, program, options);
  std::size_t streams = 0;
  for (const RankEntry& entry : program.ranks)
    streams += program.rank_programs[entry.rank_program].streams.size();
  simgrid::s4u::Engine& engine = make_engine(streams);
  SimWorld world(job, program, options, durations, engine);
  return world.run();
}

}  // namespace motley
