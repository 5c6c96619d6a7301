// Training for real on host ranks. Each rank is a process (train_rank), or a thread of this one (train_in_process, for
// tests and small runs), with the same code and the same TCP either way. This file does not start processes: hw/launch
// does. Read next: hw/world/real_world.hpp.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/kernels/run_kernel.hpp"
#include "hw/launch/agreement.hpp"
#include "hw/launch/place.hpp"
#include "hw/rank/data.hpp"
#include "hw/world/peers.hpp"
#include "models/check/inventory.hpp"
#include "models/program/expert_load.hpp"
#include "models/program/program.hpp"
#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

class RankWork;

struct TrainOptions {
  std::int64_t steps = 1;
  std::int64_t trace_step = -1;           // the step to record, counted from 0; -1: none
  bool traces_kernels = false;            // whether the trace has the kernels of its computes
  std::string record_contributions = {};  // where rank 0 writes a recording of the first step; empty: nowhere
  KernelLibrary library = KernelLibrary::fast;
  // A rank whose process gives no sign of life for so long counts as dead. One that computes for longer does not.
  double silence_s = 300;
  double rendezvous_timeout_s = 120;  // ranks may start this far apart
  GroupAlgorithms algorithms = {};    // by which ranks do collectives; none: the plain ones
  bool reads_memory = true;           // whether large messages go from memory to memory on one host
  bool uses_rdma = true;              // whether large messages go by RDMA where both sides have a device
  // Those that are used, in this order; empty: all that can be; nothing: those of the rank's place.
  std::optional<std::vector<std::string>> rdma_devices = {};
  // What the ranks must have alike besides the training: options of a command, say.
  Agreement alike = {};
  // Called when something happened that changes nothing for the run: a stranger was turned away. By any rank.
  std::function<void(const std::string&)> on_note = {};
  // Called by every rank when all have met, before anything else. What it throws ends the run.
  std::function<void(const Inventory&)> on_met = {};
  // Called on rank 0 after each step, with its number (from 0), its loss, and the loss of further tokens where there is
  // one: see TrainResult.
  std::function<void(std::int64_t, double, std::optional<double>)> on_step = {};
  // Asked by every rank after each step: whether to end early. All ranks then end after the same step, the next or the
  // one after it; if a step is yet to be traced, it is the last one.
  std::function<bool()> is_interrupted = {};
  // Called before the first step of each rank; for tests and dumps.
  std::function<void(Rank, RankWork&)> on_start = {};
  // Called when the run of a rank fails, while the rank is still connected to the others.
  std::function<void(const std::exception_ptr&)> on_failure = {};
  // Called on another thread, with why the run has failed, where this rank computes and cannot end by itself yet.
  std::function<void(const std::string&)> on_overdue = {};
};

// Complete on rank 0; on other ranks all fields are empty.
struct TrainResult {
  // One for each step: the mean over all tokens of the global batch. Fewer than asked for: the run was interrupted.
  std::vector<double> losses;
  // The same, but the mean also over the modules that predict further tokens. Empty: there are no such modules.
  std::vector<double> extra_losses;
  std::vector<double> step_s;  // seconds of each step on rank 0, with the gathering of losses
  double tokens_per_s = 0;  // over all steps but the first, which warms up; if it is the only one, over that
  // The most bytes of parameters, gradients, optimizer state and live tensors on each rank.
  IdTable<Rank, std::int64_t> peak_bytes;
  std::optional<MeasuredRouting> routing;  // nothing: the model has no experts
  // How far the clock of a host may be from that of rank 0 as it is known. 0: all ranks are on one host.
  double clock_uncertainty_s = 0;
  Trace trace;  // the trace of trace_step
  // What recording the kernels of the traced step took, on the rank that recorded most: as many records, timed after
  // the run.
  double recording_s = 0;
};

TrainResult train_rank(const Job& job, const Program& program, const Text& text, const Place& place,
                       const TrainOptions& options);
// Throws what the first rank that failed threw.
TrainResult train_in_process(const Job& job, const Program& program, const Text& text,
                             const TrainOptions& options);

}  // namespace motley
