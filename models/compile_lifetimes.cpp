// Pass "lifetimes": a tensor of a micro-batch lives from the kernel (or receive) that writes it to the last that
// touches it (or the send that takes it away); parameters, gradients and optimizer state live throughout.
#include <algorithm>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

bool per_micro_batch(const Tensor& tensor) {
  return tensor.role == TensorRole::activation || tensor.role == TensorRole::activation_gradient;
}

// Fills Kernel::frees of every block: each tensor at its last kernel, forward before backward, unless a send frees it.
void free_after_last_use(ProgramClass& of_class) {
  struct Use {
    Kernel* kernel = nullptr;
  };
  std::vector<Use> last(of_class.tensors.size());
  for (Block& block : of_class.blocks)
    for (Kernel& kernel : block.kernels) {
      for (int id : kernel.in) last[static_cast<std::size_t>(id)].kernel = &kernel;
      for (int id : kernel.out) last[static_cast<std::size_t>(id)].kernel = &kernel;
    }
  for (const Stream& stream : of_class.streams)
    for (const Instruction& instruction : stream.instructions)
      if (instruction.op == Op::send)
        for (int id : instruction.frees) last[static_cast<std::size_t>(id)].kernel = nullptr;
  for (std::size_t id = 0; id < last.size(); ++id)
    if (last[id].kernel != nullptr && per_micro_batch(of_class.tensors[id]))
      last[id].kernel->frees.push_back(static_cast<std::int32_t>(id));
}

class Ledger {
 public:
  Ledger(const ProgramClass& of_class, Instruction& instruction)
      : class_(of_class), instruction_(instruction) {}
  void allocate(std::int64_t bytes) {
    instruction_.allocated += bytes;
    live_ += bytes;
    instruction_.peak = std::max(instruction_.peak, live_);
  }
  void free(const std::vector<std::int32_t>& ids) {
    for (int id : ids) {
      const std::int64_t bytes = class_.tensors[static_cast<std::size_t>(id)].bytes;
      instruction_.freed += bytes;
      live_ -= bytes;
    }
  }

 private:
  const ProgramClass& class_;
  Instruction& instruction_;
  std::int64_t live_ = 0;
};

void account_compute(const ProgramClass& of_class, Instruction& instruction) {
  Ledger ledger(of_class, instruction);
  const auto& kernels = of_class.blocks[static_cast<std::size_t>(instruction.block)].kernels;
  for (int i = instruction.first_kernel; i < instruction.last_kernel; ++i) {
    const Kernel& kernel = kernels[static_cast<std::size_t>(i)];
    if (kernel.op != KernelOp::all_reduce)  // in place
      for (int id : kernel.out) ledger.allocate(of_class.tensors[static_cast<std::size_t>(id)].bytes);
    ledger.free(kernel.frees);
    instruction.flops += kernel.flops;
  }
}

// Tensors that a separated collective outlives: its kernel is in no compute, so it may free nothing.
void check_collectives_free_nothing(const ProgramClass& of_class) {
  for (const Block& block : of_class.blocks)
    for (const Kernel& kernel : block.kernels)
      MOTLEY_CHECK(kernel.op != KernelOp::all_reduce || kernel.frees.empty());
}

}  // namespace

void derive_lifetimes(const Job&, Program& program) {
  for (ProgramClass& of_class : program.classes) {
    free_after_last_use(of_class);
    check_collectives_free_nothing(of_class);
    for (Stream& stream : of_class.streams)
      for (Instruction& instruction : stream.instructions) {
        if (instruction.op == Op::compute) account_compute(of_class, instruction);
        if (instruction.op == Op::recv) Ledger(of_class, instruction).allocate(instruction.bytes);
        if (instruction.op == Op::send) Ledger(of_class, instruction).free(instruction.frees);
      }
  }
}

}  // namespace motley
