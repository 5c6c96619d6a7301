// How a simulation is run: where durations come from.
#pragma once

#include <vector>

#include "models/trace/trace.hpp"

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

}  // namespace motley
