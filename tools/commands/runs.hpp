// From a scenario to the trace of its run in a World: the code that simulate, train and compare share. It connects sim/
// and hw/ and prints no result. Read next: sim/simulate.hpp, hw/world/real_ranks.hpp, hw/world/train.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "hw/world/train.hpp"
#include "models/plan/prepare.hpp"
#include "models/program/expert_load.hpp"
#include "models/trace/trace.hpp"
#include "sim/world/memory_need.hpp"
#include "tools/commands/place_flags.hpp"

namespace motley {

struct SimulatedWorld {
  WorldChoice choice = {};             // of any kind but real
  std::string tape = {};               // replay: the path of a trace that was recorded in a mixed run
  std::optional<Trace> recorded = {};  // replay: that trace
  // Mixed: where a launcher has started this process, one for each real rank. None: simulate_world() starts them.
  std::optional<Place> place = {};
  std::string record_contributions = {};  // mixed: the path of the recording to write; empty: none
  double silence_s = kSilenceLimit_s;     // mixed
  bool reference_kernels = false;
  bool records_kernels = false;                                          // in the trace
  std::vector<Rank> kernel_ranks = {};                                   // see SimOptions::kernel_ranks
  std::int64_t most_kernels = std::numeric_limits<std::int64_t>::max();  // see SimOptions::most_kernels
  std::function<void(const MemoryNeed& need)> announce = {};             // see SimOptions::announce
};
// Throws Refusal("missing-option") if something is missing that the kind needs. `in_child`: simulate in a child
// process, because a process simulates only once.
Trace simulate_world(const Prepared& prepared, const SimulatedWorld& world, bool in_child = false);
// Mixed: what every process of a launch does but the first, which simulates. Throws what serve_real_rank() throws.
void serve_world(const Prepared& prepared, const SimulatedWorld& world);

// Trains for real with `motley train`, each rank in a process, and returns the trace of the last step. The ranks may
// take as many bytes as allowed_memory() of `memory`, the text of --memory, says. Throws what announce_training()
// throws.
Trace train_world(const Prepared& prepared, int steps, const std::string& memory = "");

struct TrainedSteps {
  std::vector<double> step_s;              // the seconds of each step
  std::optional<MeasuredRouting> routing;  // nothing: the model has no experts
};
// Trains for real in the same way, without a trace.
TrainedSteps train_steps(const Prepared& prepared, int steps, bool reference_kernels);

}  // namespace motley
