// One accelerator (or a CPU core acting as one): peaks, memory and measured efficiency, each with
// its source.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/format.hpp"

namespace motley {

// A figure and where it is from: "NVIDIA A100 datasheet, 2021-06" or "assumed".
struct Sourced {
  double value = 0;
  std::string source;
  bool operator==(const Sourced&) const = default;
};

// Seconds that somebody measured of one rank: the embedding, a layer in between, the head. models/measured_layers.hpp
// says what is made of them.
struct LayerTimes {
  std::int64_t tensor_parallel = 1, micro_batch = 1;
  std::array<double, 3> forward_s{}, backward_s{};
  double optimizer_s = 0;  // of each of them
  bool operator==(const LayerTimes&) const = default;
};
struct MeasuredLayers {
  std::string source;
  bool communication = false;  // whether tensor-parallel collectives are among the seconds
  std::vector<LayerTimes> times;
  bool operator==(const MeasuredLayers&) const = default;
};

struct Chip {
  std::string name;                      // a100-80gb-sxm
  std::string vendor;                    // nvidia
  std::string kind;                      // gpu | cpu
  std::map<Format, Sourced> peak_flops;  // dense, flop/s
  Sourced memory_bytes;
  Sourced reserved_memory;   // bytes of it that driver, context and libraries hold before any tensor is there
  Sourced memory_bandwidth;  // bytes/s
  Sourced multiprocessors;   // tiles that run at once: wave quantisation; 0: not modelled
  // GEMM: t = 2MNK/(peak*gemm_efficiency) * (1 + k_half/K) * (1 + wave*(Q-1)) + kernel_overhead,
  // against bytes/bandwidth. K is the length of the sums: of the product at hand, so the rows N for
  // a weight gradient.
  Sourced gemm_efficiency;       // share of peak at large shapes
  Sourced gemm_k_half;           // K at which efficiency halves
  Sourced gemm_wave;             // 0..1: weight of tile quantisation
  Sourced attention_efficiency;  // share of peak of the fused causal kernel at long sequences,
                                 // the masked half not counted
  Sourced attention_s_half;      // tokens at which it halves
  Sourced bandwidth_efficiency;  // share of memory_bandwidth that element-wise kernels reach
  Sourced kernel_overhead;       // seconds a kernel costs beyond its work
  Sourced step_overhead;         // seconds of an optimizer step beyond its memory traffic
  // What software on it adds; 0: nothing (a factor of 1).
  Sourced gemm_backward;       // a backward product takes so many times what the forward's form gives
  Sourced elementwise_passes;  // memory-bound kernels move so many times their bytes: what is not fused
  Sourced
      unfused_attention;  // above 0: scores are written and read in between; so many times the form's seconds
  Sourced layer_launch;   // seconds that the processor takes to launch a layer's forward
  Sourced expert_launch;  // and so much more that of a layer with experts
  Sourced micro_batch_overhead;  // seconds of each micro-batch beyond its kernels, over all chunks of a rank
  Sourced collective_share;      // of the seconds of collectives priced in computes, what is seen
  // Each doubling of the ranks beyond 8 makes computes so much longer: all wait for the slowest.
  Sourced straggling;
  // A compute takes so many times as long while the chip's collectives and transfers are under way; 0: 1.
  Sourced overlap_slowdown;
  MeasuredLayers layers;  // of the model that is trained; none: kernels are priced by the figures above
  // What software on it keeps in memory beyond the Program's tensors; 0: nothing. models/memory_kept.hpp says how long.
  Sourced kept_scores;  // bytes of each attention score
  Sourced kept_masks;   // bytes of each element that dropout hides, behind attention and behind feed-forward
  Sourced kept_logits;  // bytes of each logit while the loss is computed, logits and gradient among them
  Sourced
      kept_weight_gradients;  // bytes of each element of a gradient nobody reads, one for each shape of weights
  Sourced one_master;         // above 0: divided parameters are the master weights, no copy beside them
  Sourced kept_optimizer;     // bytes of each parameter's optimizer state, master weights among them
  Sourced watts;              // TDP; 0 unknown
  Sourced price_per_hour;     // USD; 0 unknown
  bool operator==(const Chip&) const = default;
};

}  // namespace motley
