// Times of kernels on a chip: a roofline with shape-dependent efficiency. The forms come from GEMM and attention
// curves of published kernels (A100/H100), see platforms/chips/.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/cluster/chip.hpp"
#include "models/cost/collective_cost.hpp"
#include "models/cost/nccl_tuning.hpp"
#include "models/cost/network_cost.hpp"
#include "models/program/program.hpp"
#include "models/world/world.hpp"

namespace motley {

struct KernelTime {
  double seconds = 0;
  double work_s = 0, memory_s = 0;  // the two sides of the roofline
};
// FLOPs that the chip computes of Kernel::flops. Assumes: the fused attention kernel skips what the causal mask
// hides, half of the counted FLOPs; published curves of causal kernels count only the other half (FlashAttention-2,
// arXiv:2307.08691), and so does ChipSoftware::attention_efficiency.
double computed_flops(const Kernel& kernel);

// `tensor_ring` prices all_reduce kernels (tensor-parallel, ring); null is allowed if there are none.
KernelTime kernel_time(const Kernel& kernel, Format format, const Chip& chip, const RingCost* tensor_ring,
                       KernelVariant variant = KernelVariant::usual);
// The same, with the kernel's own variant.
KernelTime kernel_time(const RankProgram& rank_program, const Kernel& kernel, Format format, const Chip& chip,
                       const RingCost* tensor_ring);

struct ComputeTime {
  double compute_s = 0, recompute_s = 0,
         tensor_parallel_s = 0;  // the sum is the duration of the instruction
  double seconds() const { return compute_s + recompute_s + tensor_parallel_s; }
};
// How much longer computes take than a chip's figures say, where so many ranks wait for the slowest of them; 1 where
// they are as few as the figures were measured with. It grows with the ranks.
double usual_slowness(const Chip& chip, double ranks);

// The kernels of a layer in a whole block, without collectives, and whether they send tokens to experts.
struct LayerOfBlock {
  double kernels = 0;
  bool experts = false;
};
using BlockLayers =
    std::map<std::pair<int, bool>, LayerOfBlock>;  // by layer, and whether its kernels recompute
BlockLayers layers_of(const Block& block);

// Prices compute and optimizer instructions of a rank program; kernels run one after the other, without overlap.
// Assumes: AdamW reads and writes parameter, gradient, master weight and both moments once, at memory bandwidth.
ComputeTime compute_time(const Program& program, const RankProgram& rank_program,
                         const Instruction& instruction, const Chip& chip, const RingCost* tensor_ring);
// The same, where usual_slowness() of the program's ranks is known, and layers_of() of the compute's block; null: they
// are counted, which takes as long as the block, not as the compute.
ComputeTime compute_time(const Program& program, const RankProgram& rank_program,
                         const Instruction& instruction, const Chip& chip, const RingCost* tensor_ring,
                         double slowness, const BlockLayers* layers = nullptr);

// Prices an optimizer step of the node's processor. Assumes: the node's memory limits it, and AdamW reaches 0.8 of
// its bandwidth (assumed, as for one core of an EPYC, platforms/chips/host-core.yaml); all chips of a node step at
// once, each with an equal share of the bandwidth.
double host_step_s(const Program& program, const RankProgram& rank_program, const OptimizerStep& step,
                   const NodeGroup& nodes);

// Bytes that an AdamW step of the chip moves: parameters written (and read, if they are the master weights), gradients
// read and zeroed, master weights and moments read and written.
double optimizer_step_bytes(const Program& program, const RankProgram& rank_program);

// The kernels of a compute one after the other, from its begin, as compute_time() prices them without the slowness of
// ranks. What belongs to no kernel (a pass, launches) comes first, and is returned as the first kernel's begin.
// Assumes: kernels of a compute do not overlap each other.
std::vector<KernelSpan> kernel_spans(const Program& program, const RankProgram& rank_program,
                                     const Compute& compute, const Chip& chip, const RingCost* tensor_ring,
                                     const BlockLayers* layers = nullptr);

// Prices each distinct instruction of a Program once: a thousand ranks cost as much time as their classes. Keeps
// references to both; they must outlive it.
class CostTable {
 public:
  CostTable(const Program& program, const Cluster& cluster);
  // The time of a compute or optimizer instruction of that rank, at its chip's speed. Throws
  // Refusal("unsupported-format").
  const ComputeTime& price(Rank rank, const Instruction& instruction);
  // kernel_spans() of a compute on that rank's chip.
  const std::vector<KernelSpan>& kernels(Rank rank, const Instruction& instruction);
  const RingCost& ring(GroupId group);  // equal costs have the same address
  const RingCost& pairwise(GroupId group);
  // The algorithm that `wanted` means for a collective of `bytes` bytes on that group, never `fastest` or
  // `automatic`.
  CollectiveAlgorithm algorithm_of(const CollectiveTask& task, GroupId group, CollectiveAlgorithm wanted,
                                   std::int64_t bytes);
  const CollectiveCost& collective(const CollectiveTask& task, GroupId group, CollectiveAlgorithm algorithm);
  const std::vector<CollectiveCost>& collectives(const CollectiveTask& task, GroupId group);
  // Speed of the slowest chip of a group.
  double slowest_of(GroupId group);

 private:
  double slowness_of(int chip_group);
  const BlockLayers* layers_of(RankProgramId id, const std::optional<Compute>& compute);
  struct Key {
    RankProgramId rank_program;
    int chip_group = 0;
    const RingCost* ring = nullptr;       // null: the rank has no tensor-parallel group
    std::optional<Compute> compute;       // none: an optimizer step
    std::optional<TensorId> first_state;  // first state of a step on the host
    double speed = 1, slowest = 1;        // of the chip; of the slowest chip of its tensor-parallel group
    auto operator<=>(const Key&) const = default;
  };

  Key key_of(Rank rank, const Instruction& instruction);

  const Program& program_;
  const std::shared_ptr<const Cluster> busy_;  // see as_busy_as()
  const Cluster& cluster_;
  std::map<Key, std::vector<KernelSpan>> kernels_;
  std::map<std::pair<RankProgramId, BlockId>, BlockLayers> layers_;
  std::map<Key, ComputeTime> times_;
  std::unordered_map<GroupId, const RingCost*> rings_;
  std::unordered_map<GroupId, double> slowest_;
  std::map<int, double> slowness_;  // usual_slowness() of the chips of each of the cluster's groups
  std::map<GroupId, RingCost> pairwise_;
  std::map<std::tuple<GroupId, CollectiveTask, CollectiveAlgorithm>, CollectiveCost> collective_;
  std::map<std::pair<GroupId, CollectiveTask>, std::vector<CollectiveCost>> collectives_;
  std::map<GroupId, NcclTuning> tunings_;
  std::deque<RingCost> ring_classes_;  // distinct costs; references to them stay valid
};

}  // namespace motley
