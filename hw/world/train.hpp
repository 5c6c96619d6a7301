// Training for real on host ranks: each rank a process (train_rank), or all of them threads of this one
// (train_in_process, for tests and small runs), the same code and the same TCP either way. It does not start processes:
// that is hw/launch. Read next: hw/world/real_world.hpp.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/kernels/run_kernel.hpp"
#include "hw/rank/data.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/program/program.hpp"
#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

class RankWork;

// Which rank this process is, and where they meet.
struct Place {
  Rank rank = 0, rank_count = 1;
  Address rendezvous;
  int listener = -1;  // rank 0: an inherited listening descriptor; -1: none
};

// From MOTLEY_RANK, MOTLEY_RANK_COUNT, MOTLEY_RENDEZVOUS=host:port (motley launch sets them), from torchrun's RANK,
// WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or from Slurm's SLURM_PROCID, SLURM_NTASKS with either rendezvous. Nothing when
// none is set. Refusals: "rank-conflict" where two of them disagree, "bad-rank", "bad-rendezvous".
using Environment = std::function<const char*(const char*)>;
std::optional<Place> place_from(const Environment& environment);

struct TrainOptions {
  std::int64_t steps = 1;
  std::int64_t trace_step = -1;  // record this step (from 0); -1: none
  KernelLibrary library = KernelLibrary::fast;
  double timeout_s = 300;             // a silent peer counts as dead
  double rendezvous_timeout_s = 120;  // ranks may start this far apart
  // On rank 0, after each step: its number (from 0) and its loss.
  std::function<void(std::int64_t, double)> on_step = {};
  // Before the first step of each rank; for tests and dumps.
  std::function<void(Rank, RankWork&)> on_start = {};
  // When a rank's run fails, while it is still connected to the others.
  std::function<void(const std::exception_ptr&)> on_failure = {};
};

// Complete on rank 0; elsewhere losses, rates and traces are empty.
struct TrainResult {
  std::vector<double> losses;  // a step each: mean over all tokens of the global batch
  std::vector<double>
      extra_losses;         // likewise, and over the modules that predict further tokens; empty: none
  double tokens_per_s = 0;  // over all steps but the first, which warms up; over it when it is the only one
  std::vector<std::int64_t> peak_bytes;  // by rank: parameters, gradients, optimizer state and live tensors
  Trace trace;                           // of trace_step
};

TrainResult train_rank(const Job& job, const Program& program, const Text& text, const Place& place,
                       const TrainOptions& options);
// Throws what the first rank noted as failed threw.
TrainResult train_in_process(const Job& job, const Program& program, const Text& text,
                             const TrainOptions& options);

}  // namespace motley
