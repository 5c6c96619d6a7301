// From a scenario to what a World made of it: what simulate, train and compare share. It wires sim/ and hw/
// together and prints no result. Read next: sim/simulate.hpp, hw/rank/executor.hpp, hw/world/train.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/plan/prepare.hpp"
#include "models/trace/trace.hpp"

namespace motley {

struct SimulatedWorld {
  WorldKind kind = WorldKind::sim;  // any but real
  std::vector<Rank> real_ranks;     // mixed
  std::string tape;                 // replay: a trace that was recorded in a mixed run
  bool reference_kernels = false;
};
// Refuses what the kind needs and lacks ("missing-option"). In a child process when `in_child`: a process simulates
// once.
Trace simulate_world(const Prepared& prepared, const SimulatedWorld& world, bool in_child = false);

// Trains for real, each rank a process started from `motley train`, and returns the trace of the last step.
Trace train_world(const Prepared& prepared, const std::string& scenario_path, int steps);

}  // namespace motley
