// Compares two Traces of one Strategy, instruction by instruction: did both Worlds do the same, and how far apart are
// their clocks? It judges nothing: the caller decides which deviation is too large. Read next: compare_text.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/trace/trace.hpp"

namespace motley {

struct CompareOptions {
  double peak_tolerance = 0.02;  // for an instruction's peak memory, relative to the larger
  std::size_t differences = 20;  // number kept for printing; all are counted
  std::size_t deviations = 10;   // number of the largest ones to keep
};

struct ComparedSide {
  std::string world, strategy_hash, program_hash;
  std::int64_t events = 0;
  std::vector<Rank> own_ranks;  // ranks that only this trace has
  double iteration_s = 0;       // from the first instant a stream is free to the last end
};

// Something that one World did and the other did not.
struct Difference {
  Step step;
  std::string where;    // text of describe()
  std::string what;     // "missing", "bytes", "flops", "allocated", "freed", "peak"
  double a = 0, b = 0;  // "missing": 1 in the trace that has it, 0 in the other
};

// Times of one kind of instruction in both traces. A transfer or collective counts from the instant when all its
// sides are there.
struct OpTotal {
  int stage = 0;
  StreamKind stream = StreamKind::compute;
  Op op = Op::compute;
  std::int64_t count = 0;  // instructions that are in both traces
  double a_s = 0, b_s = 0;
};
struct Deviation {
  Step step;
  std::string where;
  double a_s = 0, b_s = 0;
};

// Kernels of one kind in both traces.
struct KernelTotal {
  KernelOp op = KernelOp::embed;
  std::int64_t count = 0;
  double a_s = 0, b_s = 0;
};
// Kernels that are alike but for their micro-batch, layer and rank.
struct KernelDeviation {
  std::string kernel;  // text of describe_kernel()
  std::int64_t count = 0;
  double a_s = 0, b_s = 0;
};
// Where the compute streams of a stage's ranks spend their time, in one trace.
struct StageTime {
  double kernels_s = 0;
  double between_kernels_s = 0;  // of a compute, but of none of its kernels
  double waiting_s = 0;          // the stream is free, but what its next instruction waits for has not ended
};
struct StageTotal {
  int stage = 0;
  StageTime a, b;
};

struct Comparison {
  ComparedSide a, b;
  bool same_program = false;  // false: only the iterations are compared
  std::int64_t ranks = 0;     // ranks that are in both traces
  std::int64_t compared = 0;  // instructions that are in both traces
  std::int64_t difference_count = 0;
  std::vector<Difference> differences;
  std::vector<OpTotal> totals;        // by stage, stream, op
  std::vector<Deviation> deviations;  // largest |b - a| first
  // Empty where a trace has no kernels.
  std::vector<KernelTotal> kernels;                // the longest in either trace first
  std::vector<StageTotal> stages;                  // by stage
  std::vector<KernelDeviation> kernel_deviations;  // largest |b - a| first
  bool equal_structure() const { return same_program && difference_count == 0; }
};

// Compares two traces, of which one at least is of `program`. Throws Refusal("different-programs") when the
// strategies differ, or neither trace is of `program`.
Comparison compare(const Program& program, const Trace& a, const Trace& b,
                   const CompareOptions& options = {});

// Throws Refusal("different-programs") if the trace has an event or a kernel that the Program does not have.
void check_is_of(const Program& program, const Trace& trace);

// Fills what a comparison says about kernels, if both traces have them. Kernels that only one of them has are
// differences. The traces are of the Program.
void compare_kernels(const Program& program, const Trace& a, const Trace& b, const CompareOptions& options,
                     Comparison& comparison);
// "matmul 256 x 384 x 128 fp32": what tells kernels apart that take unlike times.
std::string describe_kernel(const Kernel& kernel, Format precision);

std::string to_json(const Comparison& comparison);  // schema "motley.compare/1"
std::string to_text(const Comparison& comparison);

}  // namespace motley
