// The list of passes: the one page to read about what a Program is made of.
#include "models/compile.hpp"

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {

const std::vector<CompilePass>& compile_passes() {
  static const std::vector<CompilePass> passes = {
      {"place", "which rank is which stage, replica and tensor index, on which chip; peers and groups",
       place},
      {"kernels", "tensors of each stage, kernels of its forward and backward", build_kernels},
      {"schedule", "order of forwards and backwards of each stage", schedule_computes},
      {"transfers", "activations and their gradients between stages, on streams of their own", add_transfers},
      {"gradients", "reduction of gradients over replicas and tied embeddings", add_gradient_reduction},
      {"optimizer", "the optimizer step, when every gradient is complete", add_optimizer},
      {"separate", "tensor-parallel collectives cut out of computes, unless priced inside them",
       separate_tensor_collectives},
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

int find_stream(const ProgramClass& of_class, StreamKind kind) {
  for (std::size_t i = 0; i < of_class.streams.size(); ++i)
    if (of_class.streams[i].kind == kind) return static_cast<int>(i);
  return -1;
}

int stream_of(ProgramClass& of_class, StreamKind kind) {
  const int found = find_stream(of_class, kind);
  if (found >= 0) return found;
  of_class.streams.push_back({kind, {}});
  return static_cast<int>(of_class.streams.size()) - 1;
}

int find_compute(const ProgramClass& of_class, Pass pass, int micro_batch) {
  const auto& computes = of_class.streams[0].instructions;
  for (int i = static_cast<int>(computes.size()) - 1; i >= 0; --i) {
    const Instruction& instruction = computes[static_cast<std::size_t>(i)];
    if (instruction.op == Op::compute && instruction.micro_batch == micro_batch &&
        of_class.blocks[static_cast<std::size_t>(instruction.block)].pass == pass)
      return i;
  }
  MOTLEY_CHECK(!"no such compute");
  return -1;
}

void replace_compute(ProgramClass& of_class, int index, const std::vector<Instruction>& pieces) {
  MOTLEY_CHECK(!pieces.empty());
  const int added = static_cast<int>(pieces.size()) - 1;
  for (Stream& stream : of_class.streams)
    for (Instruction& instruction : stream.instructions)
      for (After& after : instruction.after)
        if (after.stream == 0 && after.index >= index) after.index += added;
  auto& computes = of_class.streams[0].instructions;
  computes.erase(computes.begin() + index);
  computes.insert(computes.begin() + index, pieces.begin(), pieces.end());
}

}  // namespace motley
