#include "sim/simulate.hpp"

#include <utility>

#include "sim/fabric/repeated_draw.hpp"
#include "sim/world/kernel_events.hpp"
#include "sim/world/sim_world.hpp"

namespace motley {
namespace {

// Calls `act` with the job, or, where one rank of each class is simulated, with one whose leaves repeat a draw.
template <class Act>
auto with_draw(const Job& job, const Program& program, Act act) {
  std::optional<Cluster> cluster;
  if (job.fidelity.fold.value_or(false)) cluster = repeat_draw(job, program);
  if (!cluster) return act(job);
  Job repeated = job;
  repeated.cluster = std::move(*cluster);
  return act(repeated);
}

}  // namespace

Trace simulate(const Job& job, const Program& program, const SimOptions& options) {
  return with_draw(job, program, [&](const Job& drawn) {
    Durations durations(drawn, program, options);
    Trace trace = SimWorld(drawn, program, options, durations).run();
    if (options.records_kernels && !options.null)
      trace.kernels = kernel_events(program, trace.events, durations);
    return trace;
  });
}

MemoryNeed memory_need(const Job& job, const Program& program) {
  return with_draw(job, program, [&](const Job& drawn) {
    CostTable costs(program, drawn.cluster);
    return memory_need(drawn, program,
                       fold(drawn, program, costs, {drawn.fidelity.fold.value_or(false), {}}));
  });
}

}  // namespace motley
