#include "sim/simulate.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "models/base/refusal.hpp"
#include "sim/fold/repeated_draw.hpp"
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

Folding fold_and_announce(const Job& job, const Program& program, const SimOptions& options,
                          Durations& durations) {
  FoldOptions how{job.fidelity.fold.value_or(false), {}};
  if (!durations.for_class()) how.apart = durations.measured_ranks();
  if (options.announce)
    how.counted = [&](std::int64_t lanes) { options.announce(least_memory_need(job, program, lanes)); };
  Folding folding = fold(job, program, durations.costs(), how);
  durations.use_classes(folding.symmetry.ranks);
  if (options.announce) options.announce(memory_need(job, program, folding));
  return folding;
}

std::vector<KernelEvent> kernels_asked_for(const Program& program, const Trace& trace,
                                           const SimOptions& options, Durations& durations) {
  const std::vector<Rank>& ranks = options.kernel_ranks;
  std::vector<TraceEvent> events;
  for (const TraceEvent& event : trace.events)
    if (ranks.empty() || std::find(ranks.begin(), ranks.end(), event.step.rank) != ranks.end())
      events.push_back(event);
  if (count_kernels(program, events) > options.most_kernels) return {};
  return kernel_events(program, events, durations);
}

}  // namespace

SimulatedOrBound simulate_below(double enough_s, const Job& job, const Program& program,
                                const SimOptions& options) {
  return with_draw(job, program, [&](const Job& drawn) -> SimulatedOrBound {
    Durations durations(drawn, program, options);
    const FoldedFabric folded(drawn, program, durations.costs(),
                              fold_and_announce(drawn, program, options, durations));
    if (std::isfinite(enough_s)) {
      MOTLEY_CHECK(!options.null && !durations.any_measured());
      const Recurrence recurrence = recur(drawn, program, folded, durations.costs(), enough_s);
      if (recurrence.step_s >= enough_s) return recurrence;
    }
    Trace trace = SimWorld(drawn, program, options, durations, folded).run();
    if (options.records_kernels && !options.null)
      trace.kernels = kernels_asked_for(program, trace, options, durations);
    return trace;
  });
}

Trace simulate(const Job& job, const Program& program, const SimOptions& options) {
  return std::get<Trace>(simulate_below(std::numeric_limits<double>::infinity(), job, program, options));
}

Recurrence recur(const Job& job, const Program& program) {
  return with_draw(job, program, [&](const Job& drawn) {
    CostTable costs(program, drawn.cluster);
    const FoldedFabric folded(drawn, program, costs,
                              fold(drawn, program, costs, {drawn.fidelity.fold.value_or(false), {}}));
    return recur(drawn, program, folded, costs);
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
