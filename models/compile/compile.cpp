// The list of passes: the one page that shows how a Program is made.
#include "models/compile/compile.hpp"

#include "models/compile/compile_passes.hpp"

namespace motley {

const std::vector<CompilePass>& compile_passes() {
  static const std::vector<CompilePass> passes = {
      {"place", "which rank is which stage, replica and tensor index, on which chip; peers and groups",
       place},
      {"kernels", "tensors of each stage, kernels of its forward and backward", build_kernels},
      {"divide", "optimizer state, gradients and parameters that replicas divide among them (zero)",
       divide_state},
      {"schedule", "order of forwards and backwards of each stage", schedule_computes},
      {"transfers", "activations and their gradients between stages, on streams of their own", add_transfers},
      {"shards", "parameters gathered before, gradients reduced after each use of a layer (zero 2, 3)",
       add_shard_collectives},
      {"gradients", "reduction of gradients over replicas and tied embeddings", add_gradient_reduction},
      {"optimizer", "the optimizer step, when every gradient is complete", add_optimizer},
      {"offload", "states and activations that the node's memory keeps, and their copies (offload)",
       offload_to_hosts},
      {"separate", "tensor-parallel collectives cut out of computes, unless priced inside them",
       separate_tensor_collectives},
      {"exchanges",
       "forwards and backwards side by side, each computing while the other's tokens travel (overlap)",
       overlap_exchanges},
      {"lifetimes", "what each kernel and instruction allocates and frees", derive_lifetimes},
  };
  return passes;
}

Program compile(const Job& job) {
  validate(job.transformer, job.train, job.strategy);
  Program program;
  for (const CompilePass& pass : compile_passes()) pass.run(job, program);
  return program;
}

}  // namespace motley
