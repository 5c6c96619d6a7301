// The kernels of a step beside the peaks of their chips: FLOPs for each byte that they move, and FLOP/s that they
// reach, by the cost models. Read next: models/cost/costs_text.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/cost/costs_text.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct RooflinePeak {
  Format format = Format::bf16;
  double flops = 0;      // FLOP/s of the datasheet
  double reachable = 0;  // share of it that matrix products reach at large shapes
};

// All kernels of one op, over the passes of a step of one rank of each stage on such a chip.
struct RooflinePoint {
  std::string kernel;  // "matmul (recompute)"
  double count = 0;    // in those steps
  double flops = 0;    // without those that attention masks; 0: not an operation that is counted
  double bytes = 0, seconds = 0;
  Bound bound = Bound::compute;
};

struct ChipRoofline {
  std::string chip;
  double memory_bandwidth = 0;            // bytes/s of the datasheet
  double reachable_bandwidth = 0;         // share of it that element-wise kernels reach
  std::vector<RooflinePeak> peaks;        // of the formats in which the program's kernels compute
  std::vector<RooflinePoint> kernels;     // the longest first
  double network_s = 0, optimizer_s = 0;  // of the same steps, which are no points
};

std::vector<ChipRoofline> rooflines(const Job& job, const Program& program);

}  // namespace motley
