// Times the kernels of one rank of a Program on this host, beside other processes that are as busy. Read next:
// models/calibration/kernel_samples.hpp, models/calibration/stillness.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "models/calibration/kernel_samples.hpp"
#include "models/world/world.hpp"

namespace motley {

struct TimeOptions {
  std::int64_t busy_ranks = 1;   // processes that compute at once: the one that is timed, and copies of it
  std::int64_t least_steps = 3;  // of the Program, after one to warm up
  std::int64_t most_steps = 12;
  double seconds = 0.3;  // steps are added until they took this long
};

struct TimedProgram {
  Samples samples;
  double seconds = 0;  // that the timed steps took
  // The least share of its time that a process was on a processor. Kernels never wait, so that what is missing was
  // taken by others.
  double share_on_processor = 1;
};

// Makes an executor of that rank; each process makes its own.
using MakeExecutor = std::function<std::unique_ptr<Executor>()>;

// Runs the computes and optimizer steps of a rank's compute stream in their order. The caller must be single-threaded:
// the other busy ranks are forked. Throws what `make` and the executor throw.
TimedProgram time_program(const Program& program, Rank rank, const MakeExecutor& make,
                          const TimeOptions& options);

}  // namespace motley
