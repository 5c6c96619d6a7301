// Pass "lifetimes": a tensor of a micro-batch lives from the kernel (or receive) that writes it to the last one that
// uses it (or the send that takes it away); parameters, gradients and optimizer state live throughout.
#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"

namespace motley {
namespace {

// The last kernel that uses each tensor, in the order in which a micro-batch passes the blocks; null: none does. In a
// chunk with both a whole and a split backward, a micro-batch runs one of the two.
IdTable<TensorId, Kernel*> last_uses(RankProgram& rank_program, bool whole) {
  IdTable<ChunkId, bool> has_both(rank_program.chunks.size());
  for (const Block& block : rank_program.blocks)
    for (const Block& other : rank_program.blocks)
      if (block.chunk == other.chunk && block.pass == Pass::backward && other.pass == Pass::input_gradient)
        has_both[block.chunk] = true;
  IdTable<TensorId, Kernel*> last(rank_program.tensors.size(), nullptr);
  for (Block& block : rank_program.blocks) {
    const bool runs =
        block.pass == Pass::forward || !has_both[block.chunk] || (block.pass == Pass::backward) == whole;
    if (!runs) continue;
    for (Kernel& kernel : block.kernels) {
      for (TensorId id : kernel.in) last[id] = &kernel;
      for (TensorId id : kernel.out) last[id] = &kernel;
      for (TensorId id : kernel.parameters)
        if (reads_parameters(kernel.op)) last[id] = &kernel;
    }
  }
  return last;
}

// Fills Kernel::frees of every block: each tensor at its last kernel, unless a send, collective or copy frees it.
void free_after_last_use(RankProgram& rank_program) {
  IdTable<TensorId, bool> freed_elsewhere(rank_program.tensors.size());
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& instruction : stream.instructions) {
      const Op op = instruction.op();
      if (op == Op::send || op == Op::collective || op == Op::copy)
        for (TensorId id : instruction.frees) freed_elsewhere[id] = true;
    }
  const auto whole = last_uses(rank_program, true), split = last_uses(rank_program, false);
  for (TensorId id : rank_program.tensors.ids()) {
    if (freed_elsewhere[id] || !per_micro_batch(rank_program.tensors[id].role)) continue;
    if (whole[id] != nullptr) whole[id]->frees.push_back(id);
    if (split[id] != nullptr && split[id] != whole[id]) split[id]->frees.push_back(id);
  }
}

double flops_of(const RankProgram& rank_program, const Compute& compute) {
  const auto& kernels = rank_program.blocks[compute.block].kernels;
  double flops = 0;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) flops += kernels[at(i)].flops;
  return flops;
}

// Checks that the kernels of collectives free nothing: separated ones are in no compute.
void check_collectives_free_nothing(const RankProgram& rank_program) {
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      MOTLEY_CHECK(!is_collective(kernel.op) || kernel.frees.empty());
}

}  // namespace

void derive_lifetimes(const Job&, Program& program) {
  for (RankProgram& rank_program : program.rank_programs) {
    free_after_last_use(rank_program);
    check_collectives_free_nothing(rank_program);
    for (Stream& stream : rank_program.streams)
      for (Instruction& instruction : stream.instructions)
        if (const Compute* compute = instruction.as<Compute>())
          instruction.flops = flops_of(rank_program, *compute);
    account_bytes(rank_program);
  }
}

}  // namespace motley
