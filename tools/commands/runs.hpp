// From a scenario to what a World made of it: what simulate, train and compare share. It wires sim/ and hw/
// together and prints no result. Read next: sim/world.hpp, hw/executor.hpp, hw/train.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/check.hpp"
#include "models/scenario.hpp"
#include "models/trace.hpp"

namespace motley {

// A scenario, compiled and proved.
struct Prepared {
  Scenario scenario;
  Program program;
  std::vector<StageMemory> memory;
};
Prepared prepare(Scenario scenario);

struct SimulatedWorld {
  std::string kind = "sim";      // sim | null | mixed | replay
  std::vector<Rank> real_ranks;  // mixed
  std::string tape;              // replay: a trace that was recorded in a mixed run
  bool reference_kernels = false;
};
// Refuses what the kind needs and lacks ("missing-option"). In a child process when `in_child`: a process simulates
// once.
Trace simulate_world(const Prepared& prepared, const SimulatedWorld& world, bool in_child = false);

// Trains for real, each rank a process started from `motley train`, and returns the trace of the last step.
Trace train_world(const Prepared& prepared, const std::string& scenario_path, int steps);

}  // namespace motley
