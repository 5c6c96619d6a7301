// Pass "separate": where tensor-parallel collectives are to contend (fidelity.tensor_parallel: fluid or expanded), each
// all_reduce kernel leaves its compute and becomes an instruction of the compute stream. Everything else stays.
#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::vector<Instruction> cut_at_collectives(const ProgramClass& of_class, const Instruction& whole) {
  const auto& kernels = of_class.blocks[static_cast<std::size_t>(whole.block)].kernels;
  std::vector<Instruction> pieces;
  const auto add_compute = [&](int first, int last) {
    if (first == last) return;
    Instruction piece = whole;
    piece.after.clear();
    piece.first_kernel = first;
    piece.last_kernel = last;
    pieces.push_back(piece);
  };
  int first = whole.first_kernel;
  for (int i = whole.first_kernel; i < whole.last_kernel; ++i) {
    const Kernel& kernel = kernels[static_cast<std::size_t>(i)];
    if (kernel.op != KernelOp::all_reduce) continue;
    add_compute(first, i);
    first = i + 1;
    Instruction collective;
    collective.op = Op::collective;
    collective.micro_batch = whole.micro_batch;
    collective.slot = kTensorGroup;
    collective.tensors = kernel.out;
    collective.reduce = kernel.reduce;
    collective.bytes = kernel.bytes;
    pieces.push_back(collective);
  }
  add_compute(first, whole.last_kernel);
  pieces.front().after = whole.after;
  return pieces;
}

}  // namespace

void separate_tensor_collectives(const Job& job, Program& program) {
  if (job.fidelity.tensor_parallel == CollectiveLevel::formula || job.strategy.tp() == 1) return;
  for (ProgramClass& of_class : program.classes)
    for (int i = static_cast<int>(of_class.streams[0].instructions.size()) - 1; i >= 0; --i) {
      const Instruction whole = of_class.streams[0].instructions[static_cast<std::size_t>(i)];
      if (whole.op == Op::compute) replace_compute(of_class, i, cut_at_collectives(of_class, whole));
    }
}

}  // namespace motley
