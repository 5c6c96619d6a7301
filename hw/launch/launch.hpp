// Starts a command once for each rank, on this host or by ssh on others, and waits until all have ended: `motley launch
// -n N -- command`. It restarts nothing. Read next: hw/launch/place.hpp, by which a rank learns which one it is.
#pragma once

#include <string>
#include <vector>

#include "hw/launch/binding.hpp"
#include "models/program/program.hpp"

namespace motley {

struct LaunchOptions {
  int rank_count = 1;
  std::vector<std::string> command;  // searched in PATH
  double grace_s = 5;                // after SIGTERM, before ranks that still run get SIGKILL
  // Each rank stays on processors of its own, if there are enough: a rank that wakes up where another computes waits
  // for it, for milliseconds.
  bool bind = true;
  // Where the ranks run; empty: rank_count of them on this host. If it has no processors, bind gives ranks of this host
  // some.
  Binding binding = {};
  // An address of the host of rank 0 at which all hosts reach it; empty: all are this host. There rank 0 listens at any
  // free port, or, on another host, at one that is drawn at random.
  std::string rendezvous_host = {};
  double end_grace_s = 10;  // after a SIGTERM or SIGHUP from outside, before ranks that still run get SIGKILL
};

// Where all ranks run, with the processors of those of this host.
Binding binding_of(const LaunchOptions& options);

struct LaunchResult {
  // The exit code of the first rank that failed; 0: none failed. Where a signal from outside has ended one, this rank
  // counts, with 128 + signal: others may have noticed, and have ended before the launcher saw it.
  int exit_code = 0;
  // "rank 2 (process 4711) ended with exit code 3"; empty when all went well. A rank that is stopped is named first.
  std::string message;
  bool was_told_to_end = false;  // by SIGINT, SIGTERM or SIGHUP, which it has passed on
};

// Each process gets MOTLEY_RANK, MOTLEY_RANK_COUNT, MOTLEY_RENDEZVOUS and MOTLEY_JOB_TOKEN, drawn here, MOTLEY_DEVICE
// and MOTLEY_NIC where its binding has them, and rank 0 on this host also the listening socket. The variables of other
// launchers are removed. On other hosts these are the only variables that ranks get from here. SIGINT, SIGTERM and
// SIGHUP are passed on to the ranks; a second such signal kills them, and so does time after the latter two. When a
// rank fails, the others are ended. No process of this host outlives the call: there is no zombie, and if the launcher
// itself is killed, the kernel kills the ranks and a process of its own what they have started (hw/launch/keeper.hpp).
// Ranks of other hosts are killed there when the launcher or its ssh ends. The caller must have one thread. Throws
// Refusal "bad-rank-count", "cannot-run", "bad-rendezvous" or "no-rendezvous-host".
LaunchResult launch(const LaunchOptions& options);

// Lets this process run only on the processors that launch() would give such a rank: on any, where there are fewer than
// ranks.
void stay_on_processors_of(Rank rank, int rank_count);

}  // namespace motley
