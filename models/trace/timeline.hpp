// Draws two traces of one Program on one time axis, as an SVG picture: for each stage's first rank a row of each trace,
// with its instructions and, where a trace has them, its kernels. Read next: models/trace/compare.hpp.
#pragma once

#include <string>

#include "models/trace/trace.hpp"

namespace motley {

struct TimelineOptions {
  std::string title;
  std::size_t most_ranks = 16;  // drawn: the first rank of each stage that both traces have
  std::size_t most_marks =
      200'000;  // instructions and kernels; shorter ones than the picture resolves are left out
};

// Each trace begins at 0, when its first stream is free. Throws Refusal("different-programs") if the traces are of
// different Programs or have no rank in common.
std::string timeline_svg(const Program& program, const Trace& a, const Trace& b,
                         const TimelineOptions& options = {});

}  // namespace motley
