// IMAGINED: the Sim world. A Program runs in virtual time: computes take what models/cost says, messages and
// collectives share the fabric's links. Every stream of a rank is a coroutine that performs what the one interpreter
// loop issues. The Sim world reorders nothing and decides nothing: what waits, waits because the Program or the fabric
// says so. Read next: sim/fabric/flows.hpp, sim/fold/fold.hpp, sim/world/durations.hpp.
#pragma once

#include <variant>

#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"
#include "sim/recurrence/recurrence.hpp"
#include "sim/world/options.hpp"

namespace motley {

// Runs one step of the Program from time 0. With job.fidelity.fold the trace has the events of one rank (the lowest) of
// each class of ranks that must behave alike, otherwise of every rank. Throws RunFailure on a deadlock, naming
// the streams that wait, and whatever the executor throws.
// SimGrid has one engine in a process, so a process simulates once: a second call is a bug if links are shared in both.
// For more simulations see sim/workers/.
Trace simulate(const Job& job, const Program& program, const SimOptions& options = {});

// Simulates, unless the recurrence says that the step takes `enough_s` or longer: then nothing is simulated. All
// durations are priced. Infinite: simulates.
using SimulatedOrBound = std::variant<Trace, Recurrence>;
SimulatedOrBound simulate_below(double enough_s, const Job& job, const Program& program,
                                const SimOptions& options = {});

// What a step takes at least, without a simulation.
Recurrence recur(const Job& job, const Program& program);

// What simulate() would announce, for callers that need to know it beside a simulation in a child. It folds.
MemoryNeed memory_need(const Job& job, const Program& program);

}  // namespace motley
