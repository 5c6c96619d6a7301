// Which algorithm NCCL takes for a collective of so many bytes on a group: its own estimate, latency + bytes/bandwidth
// for every algorithm and protocol, the smallest wins. It is a rule of choice and no clock: NCCL's estimates are 1.5 to
// 2.9 times too small for small messages. Read next: models/cost/collective_cost.hpp, which prices what was chosen.
//
// Constants: NVIDIA/nccl 2.30, src/graph/tuning, read 2026-06.
// Assumes: what limits channels one by one never binds; other vendors' libraries choose as NCCL does; LL128 may be used
// inside nodes with NVLink, and between them too.
#pragma once

#include <cstdint>

#include "models/cluster/cluster.hpp"
#include "models/program/collective.hpp"
#include "models/program/program.hpp"

namespace motley {

enum class NcclGeneration : std::uint8_t { volta, ampere, hopper, blackwell };

// What the rule knows of a group.
struct NcclTuning {
  GroupShape shape;
  int nodes = 1;
  NcclGeneration generation = NcclGeneration::ampere;
  bool nvlink = false;     // or what is as fast: not PCIe
  double inside_bus = 0;   // bytes/s of a ring inside a node
  double network_bus = 0;  // bytes/s of all NICs of a node, on the slowest way between two nodes; 0: one node
  double port = 0;         // bytes/s of a chip into the switch; 0: it does not reduce
  double nic_latency_s = 0;  // what the network adds to a hop
};

NcclTuning nccl_tuning(const Program& program, const Cluster& cluster, const Group& group);

// NCCL's estimate, of the best protocol; nothing where it has none (0).
double nccl_estimate_s(const NcclTuning& tuning, CollectiveAlgorithm algorithm, std::int64_t bytes);

// all_reduce: ring, double_binary_tree or in_switch. The others are not left to a choice: rings, and pairs.
CollectiveAlgorithm nccl_choice(const NcclTuning& tuning, CollectiveKind kind, std::int64_t bytes);

}  // namespace motley
