// How long kernels take on a chip: roofline with shape-dependent efficiency. Source of the forms:
// GEMM and attention curves of published kernels (A100/H100), see platforms/chips/.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/chip.hpp"
#include "models/collective_cost.hpp"
#include "models/nccl_tuning.hpp"
#include "models/network_cost.hpp"
#include "models/program.hpp"

namespace motley {

struct KernelTime {
  double seconds = 0;
  double work_s = 0, memory_s = 0;  // the two sides of the roofline
};
// What the chip computes of Kernel::flops. Assumes: the fused attention kernel skips what the causal mask hides, half
// of the counted FLOPs; published curves of causal kernels count that half only (FlashAttention-2, arXiv:2307.08691),
// and so does Chip::attention_efficiency.
double computed_flops(const Kernel& kernel);

// `tensor_ring` prices all_reduce kernels (tensor-parallel, ring); may be null when there are none.
KernelTime kernel_time(const Kernel& kernel, Format format, const Chip& chip, const RingCost* tensor_ring);

struct ComputeTime {
  double compute_s = 0, recompute_s = 0,
         tensor_parallel_s = 0;  // sum = duration of the instruction
  double seconds() const { return compute_s + recompute_s + tensor_parallel_s; }
};
// Compute and optimizer instructions of a class; kernels are taken in turn, without overlap.
// Assumes: AdamW reads and writes parameter, gradient, master weight and both moments once, at
// memory bandwidth.
ComputeTime compute_time(const Program& program, const ProgramClass& of_class, const Instruction& instruction,
                         const Chip& chip, const RingCost* tensor_ring);

// An optimizer step of the node's processor. Assumes: it is bound by the node's memory, of whose bandwidth AdamW
// reaches 0.8 (assumed as one core of an EPYC does, platforms/chips/host-core.yaml); all chips of a node step at once,
// each with its share of it.
double host_step_s(const Program& program, const ProgramClass& of_class, const Instruction& instruction,
                   const NodeGroup& nodes);

// Prices each distinct instruction of a Program once: a thousand ranks cost what their classes cost. Keeps references;
// both must outlive it.
class CostTable {
 public:
  CostTable(const Program& program, const Cluster& cluster);
  // Of a compute or optimizer instruction of that rank. Throws Refusal("unsupported-format").
  const ComputeTime& of(Rank rank, const Instruction& instruction);
  const RingCost& ring(int group);  // index into Program::groups
  const RingCost& pairwise(int group);
  // What `wanted` comes to for a collective of so many bytes on that group: the algorithm that is done, never `fastest`
  // or `automatic`.
  CollectiveAlgorithm algorithm_of(CollectiveKind kind, int group, CollectiveAlgorithm wanted,
                                   std::int64_t bytes);
  const CollectiveCost& collective(CollectiveKind kind, int group, CollectiveAlgorithm algorithm);
  const std::vector<CollectiveCost>& collectives(CollectiveKind kind, int group);

 private:
  struct Key {
    int of_class, chip_group, ring, block, first_kernel, last_kernel, first_state;
    auto operator<=>(const Key&) const = default;
  };
  struct RingIndex {
    int index = 0;
  };
  using Rings = std::unordered_map<int, RingIndex>;
  Rings::iterator ring_of(int group);

  const Program& program_;
  const Cluster& cluster_;
  std::map<Key, ComputeTime> times_;
  Rings rings_;
  std::map<int, RingCost> pairwise_;
  std::map<std::tuple<int, CollectiveKind, CollectiveAlgorithm>, CollectiveCost> collective_;
  std::map<std::pair<int, CollectiveKind>, std::vector<CollectiveCost>> collectives_;
  std::map<int, NcclTuning> tunings_;  // by group
  std::deque<RingCost> ring_classes_;  // distinct ones; references stay valid
};

}  // namespace motley
