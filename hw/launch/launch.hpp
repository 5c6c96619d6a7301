// Starts a command once for each rank on this host, and waits until all have ended: `motley launch -n N -- command`.
// It places no ranks on other hosts (torchrun and Slurm do so; place_from() reads the variables that they set) and
// restarts nothing. Read next: hw/world/train.hpp, place_from().
#pragma once

#include <string>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

struct LaunchOptions {
  int rank_count = 1;
  std::vector<std::string> command;  // searched in PATH
  double grace_s = 5;                // after SIGTERM, before ranks that still run get SIGKILL
  // Each rank stays on processors of its own, if there are enough: a rank that wakes up where another computes waits
  // for it, for milliseconds.
  bool bind = true;
};

struct LaunchResult {
  // The exit code of the first rank that failed (128 + signal if a signal ended it); 0: none failed.
  int exit_code = 0;
  std::string message;  // "rank 2 (process 4711) ended with exit code 3"; empty when all went well
};

// Each process gets MOTLEY_RANK, MOTLEY_RANK_COUNT, MOTLEY_RENDEZVOUS and MOTLEY_JOB_TOKEN, drawn here, and rank 0 also
// the listening socket. The variables of torchrun and Slurm are removed. SIGINT, SIGTERM and SIGHUP are passed on to
// the ranks; a second such signal kills them. When a rank fails, the others are ended. No process outlives the call:
// there is no zombie, and if the launcher itself is killed, the kernel kills the ranks. The caller must have one
// thread. Throws Refusal "bad-rank-count" or "cannot-run".
LaunchResult launch(const LaunchOptions& options);

// Lets this process run only on the processors that launch() would give such a rank: on any, where there are fewer than
// ranks.
void stay_on_processors_of(Rank rank, int rank_count);

}  // namespace motley
