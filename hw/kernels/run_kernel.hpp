// Runs one Kernel of a Program on host memory: from KernelOp and tensors to loops. It neither allocates tensors nor
// frees them (hw/memory) and does not talk to other ranks: all_reduce is the World's. fp32 only. Read next:
// hw/kernels/reference.hpp (what each kernel means), hw/kernels/fast.hpp (matmuls and attention by oneDNN).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/program.hpp"
#include "models/sequence_layout.hpp"
#include "models/transformer.hpp"

namespace motley {

enum class KernelLibrary : std::uint8_t {
  reference,  // plain loops
  fast,       // oneDNN for matmuls and attention where it was built in, else loops; all else reference
};

// What a rank's kernels need besides their tensors.
struct KernelContext {
  const Transformer* transformer = nullptr;
  std::int64_t B = 0, T = 0;
  std::int64_t tensor_parallel = 1, tensor_index = 0;
  std::vector<std::int64_t> documents = {};              // Train's
  SequenceLayout layout = {};                            // of the T rows of a sequence that are here
  std::int64_t expert_parts = 1, slice = 0, slices = 1;  // models/program.hpp, ExpertPlace
  double expert_room = 0;                                // Train's
  double loss_scale = 0;                                 // 1 / tokens of the global batch
  KernelLibrary library = KernelLibrary::fast;

  std::int64_t vocabulary_rows() const {  // of each shard, padding included
    return (transformer->vocabulary + tensor_parallel - 1) / tensor_parallel;
  }
};

// The tensors of a Kernel, in the order of its `in`, `out` and `parameters`; gradients beside parameters.
struct KernelTensors {
  std::vector<const float*> in;
  std::vector<float*> out;
  std::vector<const float*> parameters;
  std::vector<float*> gradients;
  const std::int32_t* tokens = nullptr;   // (B,T) of the micro-batch: embed, embed_backward
  const std::int32_t* targets = nullptr;  // (B,T), the tokens that follow: logits_sum, loss_backward
};

// Returns the floating-point operations done, by the shapes at hand and the convention of Kernel::flops.
double run_kernel(const KernelContext& context, const Kernel& kernel, const KernelTensors& tensors);

}  // namespace motley
