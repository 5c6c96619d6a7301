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

struct Comparison {
  ComparedSide a, b;
  bool same_program = false;  // false: only the iterations are compared
  std::int64_t ranks = 0;     // ranks that are in both traces
  std::int64_t compared = 0;  // instructions that are in both traces
  std::int64_t difference_count = 0;
  std::vector<Difference> differences;
  std::vector<OpTotal> totals;        // by stage, stream, op
  std::vector<Deviation> deviations;  // largest |b - a| first
  bool equal_structure() const { return same_program && difference_count == 0; }
};

// Compares two traces, of which one at least is of `program`. Throws Refusal("different-programs") when the
// strategies differ, or neither trace is of `program`.
Comparison compare(const Program& program, const Trace& a, const Trace& b,
                   const CompareOptions& options = {});

std::string to_json(const Comparison& comparison);  // schema "motley.compare/1"
std::string to_text(const Comparison& comparison);

}  // namespace motley
