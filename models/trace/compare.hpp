// Two Traces of one Strategy laid side by side, instruction by instruction: did both Worlds do the same, and how far
// apart are their clocks? It judges nothing: whether a deviation is too large is the caller's threshold. Read next:
// compare_text.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/trace/trace.hpp"

namespace motley {

struct CompareOptions {
  double peak_tolerance = 0.02;  // of an instruction's peak memory, relative to the larger
  std::size_t differences = 20;  // kept for printing; all are counted
  std::size_t deviations = 10;   // the largest
};

struct ComparedSide {
  std::string world, strategy_hash, program_hash;
  std::int64_t events = 0;
  std::vector<Rank> own_ranks;  // in this trace only
  double iteration_s = 0;       // first free to last end
};

// What one World did and the other did not.
struct Difference {
  Step step;
  std::string where;    // describe()
  std::string what;     // "missing", "bytes", "flops", "allocated", "freed", "peak"
  double a = 0, b = 0;  // "missing": 1 where it is, 0 where not
};

// Durations are of the work itself: a transfer or collective counts from the instant all its sides were there.
struct OpTotal {
  int stage = 0;
  StreamKind stream = StreamKind::compute;
  Op op = Op::compute;
  std::int64_t count = 0;  // instructions in both
  double a_s = 0, b_s = 0;
};
struct Deviation {
  Step step;
  std::string where;
  double a_s = 0, b_s = 0;
};

struct Comparison {
  ComparedSide a, b;
  bool same_program = false;  // otherwise only the iterations are compared
  std::int64_t ranks = 0;     // in both
  std::int64_t compared = 0;  // instructions in both
  std::int64_t difference_count = 0;
  std::vector<Difference> differences;
  std::vector<OpTotal> totals;        // by stage, stream, op
  std::vector<Deviation> deviations;  // largest |b - a| first
  bool equal_structure() const { return same_program && difference_count == 0; }
};

// `program` is that of one trace at least. Throws Refusal("different-programs") when the strategies differ, or neither
// trace is of `program`.
Comparison compare(const Program& program, const Trace& a, const Trace& b,
                   const CompareOptions& options = {});

std::string to_json(const Comparison& comparison);  // schema "motley.compare/1"
std::string to_text(const Comparison& comparison);

}  // namespace motley
