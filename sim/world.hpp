// IMAGINED: the Sim world. A Program runs in SimGrid's virtual time: computes take what models/compute_cost says,
// messages and collectives share the fabric's links. Every stream of a rank is an actor, each runs the one interpreter
// loop. It reorders nothing and decides nothing: what waits, waits because the Program or the fabric says so.
// Read next: sim/fabric.hpp, sim/fold.hpp, sim/mixed.hpp.
#pragma once

#include <functional>
#include <vector>

#include "models/compile.hpp"
#include "models/trace.hpp"

namespace motley {

struct SimOptions {
  // Nothing takes time: the order of the Program alone.
  bool null = false;
  // Mixed: computes and optimizer steps of `real_ranks` are executed, their measured seconds enter virtual time,
  // rounded to whole nanoseconds (so that a tape gives the same instants again). Not owned.
  Executor* executor = nullptr;
  std::vector<Rank> real_ranks;
  // Replay: durations of tape->measured_ranks come from there. Not owned. Throws Refusal("wrong-tape") when it was
  // recorded of another Program.
  const Trace* tape = nullptr;
};

// Runs one step of the Program from time 0. With job.fidelity.fold the trace has the events of one rank (the lowest) of
// each class of ranks that must behave alike, else of every rank. Throws RunFailure on a deadlock, naming
// who waits, and whatever the executor throws.
// SimGrid has one engine a process, so a process simulates once: a second call is a bug. See simulate_in_child.
Trace simulate(const Job& job, const Program& program, const SimOptions& options = {});

// The same in a forked child, as often as wanted. The caller must be single-threaded. What the child throws as Refusal
// or RunFailure is thrown here; a child that dies otherwise is a RunFailure.
Trace simulate_in_child(const Job& job, const Program& program, const SimOptions& options = {});

// Runs `work` in a forked child and returns the trace it made: simulate_in_child for other simulations.
Trace run_in_child(const std::function<Trace()>& work);

}  // namespace motley
