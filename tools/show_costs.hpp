// The table of `motley show costs`: every kind of kernel of a Program, how often, how long, and which
// side of the roofline holds it. It lists what models/compute_cost prices and adds no price of its own.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/program.hpp"

namespace motley {

struct KernelCost {  // of one kind of kernel in one pass of a class, for one micro-batch
  std::string of_class, pass, kernel, chip;
  std::int64_t count = 0;
  double flops = 0, bytes = 0;
  double seconds = 0, work_s = 0, memory_s = 0;
  bool network = false;  // an all_reduce: the ring holds it
  std::string bound() const { return network ? "network" : work_s >= memory_s ? "compute" : "memory"; }
};

// By class, pass and kernel, in the order in which they first run.
std::vector<KernelCost> kernel_costs(const Program& program, const Cluster& cluster);

nlohmann::ordered_json to_json(const std::vector<KernelCost>& costs);
std::string to_text(const std::vector<KernelCost>& costs);

}  // namespace motley
