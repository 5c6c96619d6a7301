// Runs one Kernel of a Program on host memory, in fp32: from KernelOp and tensors to loops. It neither allocates nor
// frees tensors (hw/rank/memory.hpp does), and does not talk to other ranks: the World runs collectives. Read next:
// hw/kernels/reference.hpp (what each kernel means), hw/kernels/fast.hpp (matmuls and attention by oneDNN).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/transformer/sequence_layout.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

enum class KernelLibrary : std::uint8_t {
  reference,  // plain loops
  fast,       // matmuls and attention by hw/kernels/fast.hpp, all other kernels as reference
};

// What tells kernels apart whose times must not be mixed: "fast kernels, oneDNN 2.6.3, code 1c2d3e4f". The last word
// stands for Motley's own loops and how they were compiled (tools/cmake/kernels_code.cmake).
std::string describe(KernelLibrary library);

// Everything that a rank's kernels need besides their tensors.
struct KernelContext {
  const Transformer* transformer = nullptr;
  std::int64_t B = 0, T = 0;
  std::int64_t tensor_parallel = 1, tensor_index = 0;
  std::vector<std::int64_t> documents = {};  // Train::documents
  SequenceLayout layout = {};                // places of the T rows of a sequence that this rank holds
  std::int64_t expert_parts = 1, slice = 0, slices = 1;  // see ExpertPlace in models/program/program.hpp
  double expert_room = 0;                                // Train::expert_room
  double loss_scale = 0;                                 // 1 / tokens of the global batch
  KernelLibrary library = KernelLibrary::fast;

  std::int64_t vocabulary_rows() const {  // rows of each shard, with padding
    return (transformer->vocabulary + tensor_parallel - 1) / tensor_parallel;
  }
};

// The tensors of a Kernel, in the order of its `in`, `out` and `parameters`; `gradients` in the order of `parameters`.
struct KernelTensors {
  std::vector<const float*> in;
  std::vector<float*> out;
  std::vector<const float*> parameters;
  std::vector<float*> gradients;
  const std::int32_t* tokens = nullptr;   // (B,T) of the micro-batch, for embed and embed_backward
  const std::int32_t* targets = nullptr;  // (B,T), the tokens that follow, for logits_sum and loss_backward
};

// Returns the number of floating-point operations, counted from the shapes as Kernel::flops counts them.
double run_kernel(const KernelContext& context, const Kernel& kernel, const KernelTensors& tensors);

}  // namespace motley
