// The physical world as a Program sees it, and the one interpreter loop that runs a Program in any World. Sim
// (sim/world) takes virtual time, Real (hw/world) moves bytes, Null (models/world) takes no time. Read next:
// models/trace/trace.hpp.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/base/transfer_path.hpp"
#include "models/program/program.hpp"

namespace motley {

// An instruction of a rank; it also names the event of its end. It is known before it is issued.
struct Step {
  Rank rank;
  StreamId stream;
  std::int32_t index = 0;
  auto operator<=>(const Step&) const = default;
};

class World {
 public:
  virtual ~World() = default;
  // Begins `step` once everything issued earlier on its stream and every step of `after` (same rank, perhaps not yet
  // issued) has ended. It may return before the step has ended (a device's stream, virtual time) or after (a thread).
  // Throws RunFailure when the step cannot be done.
  virtual void issue(const Step& step, const Instruction& instruction, std::span<const Step> after) = 0;
  // Returns when everything issued on the stream has ended; in the Null world, where no time passes, at once.
  virtual void await(Rank rank, StreamId stream) = 0;
};

// The interpreter: issues every instruction of one stream in order. Each World calls it from its own kind of stream
// (a coroutine, a thread). No World reorders a stream.
void run_stream(const Program& program, Rank rank, StreamId stream, World& world);

// When one kernel of a compute ran, in seconds from the compute's begin.
struct KernelSpan {
  std::int32_t kernel = 0;  // its place in Block::kernels
  double begin_s = 0, end_s = 0;
  double flops = 0;  // that it did
};

// The part of a World that does a rank's work and returns its time. It is declared here so that sim/ can let hw/
// execute some ranks (Mixed) and neither includes the other. tools/ joins them.
class Executor {
 public:
  virtual ~Executor() = default;
  // Runs a compute or optimizer step of its rank for real. Received tensors that the step needs get finite,
  // documented values. Returns seconds; a collective inside a compute has no part in them, and its kernel no length.
  virtual double execute(const Step& step, const Instruction& instruction) = 0;
  // Performs a transfer, a collective or a copy; `together` are the steps of it whose ranks this executor executes. If
  // `complete`, no other rank takes part, and its bytes really move. Otherwise the executor fills in what the others
  // would have brought; several steps are then those of all ranks of a collective that it executes. Returns the
  // seconds from when the last of the ranks had begun to move bytes until the last had ended; nothing: no bytes moved,
  // or nobody timed them. The World that imagines the fabric may price it instead.
  virtual std::optional<double> communicate(const std::vector<Step>& /*together*/, bool /*complete*/) {
    return std::nullopt;
  }
  // Which paths the bytes of a step of the last communicate() took, those on which its rank waited; empty: none moved.
  virtual PathSet paths(const Step& /*step*/) const { return {}; }
  // The kernels of the compute that execute() ran last, in their order; empty where they are not known one by one.
  virtual std::vector<KernelSpan> kernels() const { return {}; }
};

}  // namespace motley
