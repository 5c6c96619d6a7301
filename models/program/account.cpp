#include "models/program/account.hpp"

#include <algorithm>

#include "models/base/size.hpp"

namespace motley {
namespace {

// Counts the bytes that an instruction has allocated and freed so far.
class Ledger {
 public:
  Ledger(const RankProgram& rank_program, Instruction& instruction)
      : rank_program_(rank_program), instruction_(instruction) {}
  void allocate(std::int64_t bytes) {
    instruction_.allocated += bytes;
    live_ += bytes;
    instruction_.peak = std::max(instruction_.peak, live_);
  }
  void free(const std::vector<TensorId>& ids) {
    for (TensorId id : ids) {
      const Tensor& tensor = rank_program_.tensors[id];
      if (tensor.on_host) continue;
      instruction_.freed += tensor.bytes;
      live_ -= tensor.bytes;
    }
  }

 private:
  const RankProgram& rank_program_;
  Instruction& instruction_;
  std::int64_t live_ = 0;
};

void account_compute(const RankProgram& rank_program, const Compute& compute, Ledger& ledger) {
  const auto& kernels = rank_program.blocks[compute.block].kernels;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    if (!is_collective(kernel.op))  // collectives work in place
      for (TensorId id : kernel.out) ledger.allocate(rank_program.tensors[id].bytes);
    ledger.free(kernel.frees);
  }
}

void account_copy(const RankProgram& rank_program, const Copy& copy, Ledger& ledger) {
  for (TensorId id : copy.into) {
    const Tensor& tensor = rank_program.tensors[id];
    if (per_micro_batch(tensor.role) && !tensor.on_host) ledger.allocate(tensor.bytes);
  }
}

void account(const RankProgram& rank_program, Instruction& instruction) {
  instruction.allocated = instruction.freed = instruction.peak = 0;
  Ledger ledger(rank_program, instruction);
  if (const Compute* compute = instruction.as<Compute>()) {
    account_compute(rank_program, *compute, ledger);
  } else if (const Recv* recv = instruction.as<Recv>()) {
    if (makes_received(instruction)) ledger.allocate(recv->bytes * recv->parts * recv->rows);
  } else if (const Collective* collective = instruction.as<Collective>()) {
    if (makes_tensors(rank_program, instruction))
      for (TensorId id : collective->tensors) ledger.allocate(rank_program.tensors[id].bytes);
    ledger.free(instruction.frees);
  } else if (const Copy* copy = instruction.as<Copy>()) {
    account_copy(rank_program, *copy, ledger);
    ledger.free(instruction.frees);
  } else if (instruction.as<Send>() != nullptr) {
    ledger.free(instruction.frees);
  }
}

}  // namespace

void refuse_uncountable(const RankProgram& rank_program) {
  std::int64_t held = 0, of_micro_batch = 0;
  for (const Tensor& tensor : rank_program.tensors) {
    std::int64_t& sum = per_micro_batch(tensor.role) ? of_micro_batch : held;
    sum = size_sum(sum, tensor.bytes);
  }
  size_sum(held, size_product({of_micro_batch, rank_program.micro_batches}));
}

void account_bytes(RankProgram& rank_program) {
  for (Stream& stream : rank_program.streams)
    for (Instruction& instruction : stream.instructions) account(rank_program, instruction);
}

}  // namespace motley
