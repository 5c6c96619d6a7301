// Starts a command once a rank on this host and stays until all have ended: `motley launch -n N -- command`. It places
// no ranks on other hosts (torchrun and Slurm do; hw/train reads what they set) and restarts nothing. Read next:
// hw/train.hpp, place_from().
#pragma once

#include <string>
#include <vector>

namespace motley {

struct LaunchOptions {
  int rank_count = 1;
  std::vector<std::string> command;  // searched in PATH
  double grace_s = 5;                // between asking the rest to end (SIGTERM) and ending them (SIGKILL)
};

struct LaunchResult {
  int exit_code = 0;    // of the first rank that failed; 128 + signal where a signal ended it
  std::string message;  // "rank 2 (process 4711) ended with exit code 3"; empty when all went well
};

// Each process gets MOTLEY_RANK, MOTLEY_RANK_COUNT and MOTLEY_RENDEZVOUS, rank 0 the listening socket itself; what
// torchrun or Slurm had set is taken away. SIGINT, SIGTERM and SIGHUP are passed on, a second one kills. When a rank
// fails, the others are ended. Nothing outlives the call: no zombie, and should the launcher itself be killed, the
// kernel kills the ranks. Call it from a process of one thread. Refusals: "bad-rank-count", "cannot-run".
LaunchResult launch(const LaunchOptions& options);

}  // namespace motley
