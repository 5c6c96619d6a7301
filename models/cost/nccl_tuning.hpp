// The algorithm that NCCL chooses for a collective of a given size on a group: NCCL estimates latency +
// bytes/bandwidth for every algorithm and protocol, and takes the smallest. The estimates serve the choice only: they
// are 1.5 to 2.9 times too small for small messages. Read next: models/cost/collective_cost.hpp, which prices the
// chosen algorithm.
//
// Constants: NVIDIA/nccl 2.30, src/graph/tuning, read 2026-06.
// Assumes: limits of single channels never bind; other vendors' libraries choose as NCCL does; LL128 may be used
// inside nodes with NVLink, and between them.
#pragma once

#include <cstdint>

#include "models/cluster/cluster.hpp"
#include "models/program/collective.hpp"
#include "models/program/program.hpp"

namespace motley {

enum class NcclGeneration : std::uint8_t { volta, ampere, hopper, blackwell };

// What the rule needs to know of a group.
struct NcclTuning {
  GroupShape shape;
  int nodes = 1;
  NcclGeneration generation = NcclGeneration::ampere;
  bool nvlink = false;       // NVLink or another fast fabric; false: PCIe
  double inside_bus = 0;     // bytes/s of a ring inside a node
  double network_bus = 0;    // bytes/s of all NICs of a node on the slowest route between two nodes; 0: one
                             // node
  double port = 0;           // bytes/s of a chip into the switch; 0: the switch does not reduce
  double nic_latency_s = 0;  // seconds that the network adds to a hop
};

NcclTuning nccl_tuning(const Program& program, const Cluster& cluster, const Group& group);

// NCCL's estimate for the best protocol; 0: NCCL has none.
double nccl_estimate_s(const NcclTuning& tuning, CollectiveAlgorithm algorithm, std::int64_t bytes);

// Chooses ring, double_binary_tree or in_switch for an all_reduce. Other kinds have no choice: rings, and pairs.
CollectiveAlgorithm nccl_choice(const NcclTuning& tuning, CollectiveKind kind, std::int64_t bytes);

}  // namespace motley
