// How a simulation runs: where its durations come from.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "models/trace/trace.hpp"
#include "sim/world/memory_need.hpp"

namespace motley {

struct SimOptions {
  // Called with what memory the simulation will need before it takes most of it: at least this, before lanes are made;
  // then with the whole, before streams are. It may throw.
  std::function<void(const MemoryNeed& need)> announce = {};
  // True: nothing takes time, so that only the order of the Program remains.
  bool null = false;
  // True: SimGrid shares every link, also those that nobody contends for. It gives the same answer, and is slower.
  bool all_shared = false;
  // False: the trace does not say the Program's hash, for which all of it is printed.
  bool hashes_program = true;
  // True: the trace has the kernels of computes, too.
  bool records_kernels = false;
  // Only the kernels of these ranks are recorded; empty: of all that are simulated.
  std::vector<Rank> kernel_ranks;
  // A trace that would have more kernels has none.
  std::int64_t most_kernels = std::numeric_limits<std::int64_t>::max();
  // Mixed: the executor runs the computes and optimizer steps of `real_ranks`, and their measured seconds enter virtual
  // time, rounded to whole nanoseconds (so that a tape gives the same instants again). Null: not Mixed. Not owned.
  Executor* executor = nullptr;
  std::vector<Rank> real_ranks;
  // Mixed: the seconds of each real rank are those of all ranks that must behave like it. The job folds.
  bool real_for_class = false;
  // Mixed: transfers and collectives in which only real ranks take part take the seconds that the executor returns for
  // them, in whole nanoseconds, not the fabric's price.
  bool measured_transfers = false;
  // Replay: the durations of tape->measured_ranks come from this trace. Null: not Replay. Not owned. A tape of another
  // Program is Refusal("wrong-tape").
  const Trace* tape = nullptr;
};

}  // namespace motley
