// Pass "separate": each all_to_all kernel, by which ranks exchange tokens of experts, leaves its compute and becomes
// an instruction of the compute stream, and so does each collective over a context-parallel group. Tensor-parallel
// collectives do so where they may contend with other traffic (fidelity.tensor_parallel: fluid or expanded). Other
// kernels stay.
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"

namespace motley {
namespace {

GroupSlot slot_of(const RankProgram& rank_program, const Kernel& kernel) {
  if (kernel.op == KernelOp::all_to_all) return kExpertGroup;
  return kernel.over == GroupKind::context ? context_slot(rank_program) : kTensorGroup;
}

Collective collective_for(const RankProgram& rank_program, const Kernel& kernel) {
  Collective collective;
  collective.kind = collective_of(kernel.op);
  collective.reduce = kernel.reduce;
  collective.slot = slot_of(rank_program, kernel);
  collective.tensors = kernel.out;
  collective.bytes = kernel.bytes;
  if (kernel.op != KernelOp::all_to_all) return collective;
  collective.bytes = rank_program.tensors[kernel.out.at(0)].bytes;
  if (kernel.bytes < collective.bytes) collective.expected = kernel.bytes;
  return collective;
}

std::vector<Instruction> cut_at_collectives(const RankProgram& rank_program, const Instruction& whole,
                                            const Compute& compute, bool tensor_parallel) {
  const auto& kernels = rank_program.blocks[compute.block].kernels;
  std::vector<Instruction> pieces;
  const auto add_compute = [&](int first, int last) {
    if (first == last) return;
    Instruction piece = whole;
    piece.after.clear();
    piece.body = Compute{compute.block, first, last};
    pieces.push_back(std::move(piece));
  };
  int first = compute.first_kernel;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    if (!is_collective(kernel.op) || (!tensor_parallel && priced_in_computes(kernel))) continue;
    add_compute(first, i);
    first = i + 1;
    Instruction& instruction = pieces.emplace_back();
    instruction.body = collective_for(rank_program, kernel);
    instruction.micro_batch = whole.micro_batch;
  }
  add_compute(first, compute.last_kernel);
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
  for (RankProgram& rank_program : program.rank_programs) {
    const bool always = rank_program.expert_parallel > 1 || rank_program.context_parallel > 1;
    if (!always && (!tensor_parallel || rank_program.tensor_parallel == 1)) continue;
    std::vector<std::vector<Instruction>> pieces;
    for (const Instruction& whole : rank_program.streams[kComputeStream].instructions) {
      pieces.emplace_back();
      if (const Compute* const compute = whole.as<Compute>())
        pieces.back() = cut_at_collectives(rank_program, whole, *compute, tensor_parallel);
    }
    replace_computes(rank_program, std::move(pieces));
  }
}

}  // namespace motley
