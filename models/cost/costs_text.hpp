// What `motley show costs` prints: how long the cost models say each pass of each stage takes, kernel by kernel, and
// which side of the roofline decides. It prices a Program; no World runs. Read next: models/cost/compute_cost.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/cost/carriers_text.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// What decides a kernel's time.
enum class Bound : std::uint8_t { compute, memory, overhead, network };
std::string_view name_of(Bound bound);

struct KernelCost {  // of all kernels of one op in a block, once
  KernelOp op = KernelOp::embed;
  bool recompute = false;
  std::int64_t count = 0;
  double flops = 0, bytes = 0;
  double computed_flops = 0;  // without what attention masks
  double seconds = 0, work_s = 0, memory_s = 0;
  Bound bound = Bound::compute;
  bool operator==(const KernelCost&) const = default;
};

struct PassCost {  // of one micro-batch
  int stage = 0;
  std::string chip;                 // its name
  Rank rank = 0;                    // the first of this stage on such a chip: priced for it
  std::string pass;                 // a block's name; "optimizer"
  std::int64_t times = 0;           // a step
  double seconds = 0;               // once
  std::vector<KernelCost> kernels;  // by op; none for the optimizer
};

// By stage, chip and pass.
std::vector<PassCost> price_passes(const Job& job, const Program& program);

std::string costs_json(const std::vector<PassCost>& passes,
                       const std::vector<ListedCarrier>& carriers);  // schema "motley.costs/1"
std::string costs_text(const std::vector<PassCost>& passes);

}  // namespace motley
