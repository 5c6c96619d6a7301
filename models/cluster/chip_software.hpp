// What software makes of a chip: the share of its peaks that kernels reach, the time lost around kernels, and what
// stays in memory beside the tensors. The chip's datasheet is models/cluster/chip.hpp. Read next:
// models/cost/compute_cost.hpp, which prices kernels by these figures, and models/check/memory_kept.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/cluster/kernel_rates.hpp"
#include "models/cluster/sourced.hpp"

namespace motley {

// Measured seconds on one rank for the embedding, one layer, and the head. models/cluster/measured_layers.hpp says
// how they are used.
struct LayerTimes {
  std::int64_t tensor_parallel = 1, micro_batch = 1;
  std::array<double, 3> forward_s{}, backward_s{};
  double optimizer_s = 0;  // optimizer step of each of the three
  bool operator==(const LayerTimes&) const = default;
};
struct MeasuredLayers {
  std::string source;
  bool communication = false;  // true: the seconds include tensor-parallel collectives
  std::vector<LayerTimes> times;
  bool operator==(const MeasuredLayers&) const = default;
};

// Figures from a chip's file and platforms/software. A figure of 0 adds nothing; as a factor it counts as 1.
struct ChipSoftware {
  // A matrix product takes 2MNK/(peak*gemm_efficiency) * (1 + gemm_k_half/K) * (1 + gemm_wave*(Q-1)), at least its
  // bytes over the bandwidth, and kernel_overhead. K is the length of the product's sums: for a weight gradient the N
  // rows. Q is the quantisation by tiles over Chip::multiprocessors.
  Sourced gemm_efficiency;  // share of the peak at large shapes
  Sourced gemm_k_half;      // K at which the efficiency halves
  Sourced gemm_wave;        // 0 to 1: weight of tile quantisation
  // Share of the peak that the fused causal kernel reaches at long sequences; the masked half is not counted as work.
  Sourced attention_efficiency;
  Sourced attention_s_half;      // tokens at which that efficiency halves
  Sourced bandwidth_efficiency;  // share of Chip::memory_bandwidth that element-wise kernels reach
  Sourced kernel_overhead;       // seconds of each kernel beyond its work
  Sourced step_overhead;         // seconds of an optimizer step beyond its memory traffic
  Sourced gemm_backward;         // factor on the time of a backward product
  Sourced elementwise_passes;  // factor on the bytes that memory-bound kernels move, where they are not fused
  // 0: attention is fused. Above 0: scores are written and read between the products, at this many times the
  // formula's cost.
  Sourced unfused_attention;
  Sourced layer_launch;          // seconds that the processor takes to launch the forward of a layer
  Sourced expert_launch;         // additional seconds to launch a layer with experts
  Sourced launch_wait;           // 0 to 1: share of launches that wait for kernels, so that none hides them
  Sourced micro_batch_overhead;  // seconds of each micro-batch beyond its kernels, over all chunks of a rank
  // Seconds of each forward and each backward of a chunk beyond its kernels, where the software waits for the chip to
  // have ended before it passes messages on. More chunks cost more.
  Sourced pass_overhead;
  Sourced collective_share;  // share of the time of collectives inside computes that other work does not
                             // hide
  // Standard deviation of the speeds of chips that are called alike. All ranks wait for the slowest, and the other
  // figures describe the slowest of 8.
  Sourced variation;
  Sourced overlap_slowdown;  // factor on a compute while collectives or transfers of its chip are under way
  // Measured times of the model's layers. None: kernels are priced by the figures above.
  KernelRates kernels;  // replace the figures above for the kinds of kernels that were measured
  MeasuredLayers layers;

  // Bytes of the chip's memory that driver, context and libraries hold before any tensor exists.
  Sourced reserved_memory;
  // What the software keeps in memory differently from the Program. models/check/memory_kept.hpp says for how long.
  Sourced kept_scores;  // bytes of each attention score
  Sourced kept_masks;   // bytes of each element that dropout masks, after attention and after the
                        // feed-forward part
  Sourced kept_logits;  // bytes of each logit while the loss is computed, with its gradient
  // Bytes of each element of a gradient that nobody reads. Each shape of weights has one such gradient.
  Sourced kept_weight_gradients;
  SourcedSwitch one_master;  // true: the divided parameters are the master weights, with no copy beside them
  Sourced kept_optimizer;    // bytes of each parameter's optimizer state, master weights included
  Sourced kept_weights;      // bytes of each weight that is multiplied in fp8 with one scale for each tensor
  bool operator==(const ChipSoftware&) const = default;
};

}  // namespace motley
