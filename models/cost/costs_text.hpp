// The content of `motley show costs`: the time of each pass of each stage by the cost models, kernel by kernel, and
// the side of the roofline that decides. It prices a Program; no World runs. Read next: models/cost/compute_cost.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/cost/carriers_text.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// The part that decides a kernel's time.
enum class Bound : std::uint8_t { compute, memory, overhead, network };
std::string_view name_of(Bound bound);

struct KernelCost {  // all kernels of one op in a block, run once
  KernelOp op = KernelOp::embed;
  bool recompute = false;
  std::int64_t count = 0;
  double flops = 0, bytes = 0;
  double computed_flops = 0;  // FLOPs without those that attention masks
  double seconds = 0, work_s = 0, memory_s = 0;
  Bound bound = Bound::compute;
  bool operator==(const KernelCost&) const = default;
};

struct PassCost {  // one pass of one micro-batch
  int stage = 0;
  std::string chip;                 // name of the chip
  Rank rank;                        // the first rank of this stage on such a chip; prices are for that rank
  std::string pass;                 // name of a block, or "optimizer"
  std::int64_t times = 0;           // passes in a step
  double seconds = 0;               // seconds of one pass
  std::vector<KernelCost> kernels;  // by op; empty for the optimizer
};

// Prices the passes, by stage, chip and pass.
std::vector<PassCost> price_passes(const Job& job, const Program& program);

std::string costs_json(const std::vector<PassCost>& passes,
                       const std::vector<ListedCarrier>& carriers);  // schema "motley.costs/1"
std::string costs_text(const std::vector<PassCost>& passes);

}  // namespace motley
