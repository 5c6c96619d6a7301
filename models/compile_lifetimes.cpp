// Pass "lifetimes": a tensor of a micro-batch lives from the kernel (or receive) that writes it to the last that
// touches it (or the send that takes it away); parameters, gradients and optimizer state live throughout.
#include <algorithm>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

// The last kernel that touches each tensor, as a micro-batch passes the blocks; null: none does. A chunk that has
// both a whole and a split backward runs one of them for a micro-batch.
std::vector<Kernel*> last_uses(ProgramClass& of_class, bool whole) {
  std::vector<bool> has_both(of_class.chunks.size());
  for (const Block& block : of_class.blocks)
    for (const Block& other : of_class.blocks)
      if (block.chunk == other.chunk && block.pass == Pass::backward && other.pass == Pass::input_gradient)
        has_both[static_cast<std::size_t>(block.chunk)] = true;
  std::vector<Kernel*> last(of_class.tensors.size(), nullptr);
  for (Block& block : of_class.blocks) {
    const bool runs = block.pass == Pass::forward || !has_both[static_cast<std::size_t>(block.chunk)] ||
                      (block.pass == Pass::backward) == whole;
    if (!runs) continue;
    for (Kernel& kernel : block.kernels) {
      for (int id : kernel.in) last[static_cast<std::size_t>(id)] = &kernel;
      for (int id : kernel.out) last[static_cast<std::size_t>(id)] = &kernel;
      for (int id : kernel.parameters)
        if (reads_parameters(kernel.op)) last[static_cast<std::size_t>(id)] = &kernel;
    }
  }
  return last;
}

// Fills Kernel::frees of every block: each tensor at its last kernel, unless a send frees it.
void free_after_last_use(ProgramClass& of_class) {
  std::vector<bool> sent(of_class.tensors.size());
  for (const Stream& stream : of_class.streams)
    for (const Instruction& instruction : stream.instructions)
      if (instruction.op == Op::send || instruction.op == Op::collective || instruction.op == Op::copy)
        for (int id : instruction.frees) sent[static_cast<std::size_t>(id)] = true;
  const auto whole = last_uses(of_class, true), split = last_uses(of_class, false);
  for (std::size_t id = 0; id < sent.size(); ++id) {
    if (sent[id] || !per_micro_batch(of_class.tensors[id].role)) continue;
    const auto freed = static_cast<std::int32_t>(id);
    if (whole[id] != nullptr) whole[id]->frees.push_back(freed);
    if (split[id] != nullptr && split[id] != whole[id]) split[id]->frees.push_back(freed);
  }
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
      if (class_.tensors[static_cast<std::size_t>(id)].on_host) continue;
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
    if (!is_collective(kernel.op))  // in place
      for (int id : kernel.out) ledger.allocate(of_class.tensors[static_cast<std::size_t>(id)].bytes);
    ledger.free(kernel.frees);
  }
}

void count_flops(const ProgramClass& of_class, Instruction& instruction) {
  const auto& kernels = of_class.blocks[static_cast<std::size_t>(instruction.block)].kernels;
  for (int i = instruction.first_kernel; i < instruction.last_kernel; ++i)
    instruction.flops += kernels[static_cast<std::size_t>(i)].flops;
}

void account_collective(const ProgramClass& of_class, Instruction& instruction) {
  Ledger ledger(of_class, instruction);
  if (makes_tensors(of_class, instruction))
    for (int id : instruction.tensors) ledger.allocate(of_class.tensors[static_cast<std::size_t>(id)].bytes);
  ledger.free(instruction.frees);
}

void account_copy(const ProgramClass& of_class, Instruction& instruction) {
  Ledger ledger(of_class, instruction);
  for (int id : instruction.into) {
    const Tensor& tensor = of_class.tensors[static_cast<std::size_t>(id)];
    if (per_micro_batch(tensor.role) && !tensor.on_host) ledger.allocate(tensor.bytes);
  }
  ledger.free(instruction.frees);
}

// Tensors that a separated collective outlives: its kernel is in no compute, so it may free nothing.
void check_collectives_free_nothing(const ProgramClass& of_class) {
  for (const Block& block : of_class.blocks)
    for (const Kernel& kernel : block.kernels)
      MOTLEY_CHECK(!is_collective(kernel.op) || kernel.frees.empty());
}

}  // namespace

void account_bytes(ProgramClass& of_class) {
  for (Stream& stream : of_class.streams)
    for (Instruction& instruction : stream.instructions) {
      instruction.allocated = instruction.freed = instruction.peak = 0;
      if (instruction.op == Op::compute) account_compute(of_class, instruction);
      if (makes_received(instruction))
        Ledger(of_class, instruction).allocate(instruction.bytes * instruction.parts * instruction.rows);
      if (instruction.op == Op::collective) account_collective(of_class, instruction);
      if (instruction.op == Op::copy) account_copy(of_class, instruction);
      if (instruction.op == Op::send) Ledger(of_class, instruction).free(instruction.frees);
    }
}

void derive_lifetimes(const Job&, Program& program) {
  for (ProgramClass& of_class : program.classes) {
    free_after_last_use(of_class);
    check_collectives_free_nothing(of_class);
    for (Stream& stream : of_class.streams)
      for (Instruction& instruction : stream.instructions)
        if (instruction.op == Op::compute) count_flops(of_class, instruction);
    account_bytes(of_class);
  }
}

}  // namespace motley
