// How long kernels take on a chip: roofline with shape-dependent efficiency. Source of the forms:
// GEMM and attention curves of published kernels (A100/H100), see platforms/chips/.
#pragma once

#include <cstdint>

#include "models/chip.hpp"
#include "models/network_cost.hpp"
#include "models/program.hpp"

namespace motley {

struct KernelTime {
  double seconds = 0;
  double work_s = 0, memory_s = 0;  // the two sides of the roofline
};
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

}  // namespace motley
