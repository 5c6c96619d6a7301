// Pass "separate": each all_to_all kernel, by which ranks exchange tokens of experts, leaves its compute and becomes an
// instruction of the compute stream, and so does each collective over a context-parallel group. Tensor-parallel
// collectives do where they are to contend (fidelity.tensor_parallel: fluid or expanded). Everything else stays.
#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

int slot_of(const ProgramClass& of_class, const Kernel& kernel) {
  if (kernel.op == KernelOp::all_to_all) return kExpertGroup;
  return kernel.over == GroupKind::context ? context_slot(of_class) : kTensorGroup;
}

Instruction instruction_of(const ProgramClass& of_class, const Kernel& kernel, int micro_batch) {
  Instruction collective;
  collective.op = Op::collective;
  collective.micro_batch = micro_batch;
  collective.slot = slot_of(of_class, kernel);
  collective.collective = collective_of(kernel.op);
  collective.tensors = kernel.out;
  collective.reduce = kernel.reduce;
  collective.bytes = kernel.bytes;
  if (kernel.op != KernelOp::all_to_all) return collective;
  collective.bytes = of_class.tensors[static_cast<std::size_t>(kernel.out.at(0))].bytes;
  if (kernel.bytes < collective.bytes) collective.expected = kernel.bytes;
  return collective;
}

std::vector<Instruction> cut_at_collectives(const ProgramClass& of_class, const Instruction& whole,
                                            bool tensor_parallel) {
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
    if (!is_collective(kernel.op) || (!tensor_parallel && priced_in_computes(kernel))) continue;
    add_compute(first, i);
    first = i + 1;
    pieces.push_back(instruction_of(of_class, kernel, whole.micro_batch));
  }
  add_compute(first, whole.last_kernel);
  pieces.front().after = whole.after;
  return pieces;
}

}  // namespace

void separate_tensor_collectives(const Job& job, Program& program) {
  if (job.fidelity.expert_copies == ExpertCopies::node) {
    const Experts& experts = job.transformer.experts;
    program.routing = {experts.count,         experts.per_token, experts.groups, experts.groups_per_token,
                       job.train.expert_skew, job.train.seed};
  }
  const bool tensor_parallel = job.fidelity.tensor_parallel != CollectiveLevel::formula;
  for (ProgramClass& of_class : program.classes) {
    const bool always = of_class.expert_parallel > 1 || of_class.context_parallel > 1;
    if (!always && (!tensor_parallel || of_class.tensor_parallel == 1)) continue;
    std::vector<std::vector<Instruction>> pieces;
    for (const Instruction& whole : of_class.streams[0].instructions) {
      pieces.emplace_back();
      if (whole.op == Op::compute) pieces.back() = cut_at_collectives(of_class, whole, tensor_parallel);
    }
    replace_computes(of_class, std::move(pieces));
  }
}

}  // namespace motley
