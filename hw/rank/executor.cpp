#include "hw/executor.hpp"

#include "hw/transport/tcp/socket.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

// Some bytes of every value, so that every row of the vocabulary's first 256 is looked up.
std::string made_up_bytes(const Train& train) {
  std::string bytes;
  for (std::int64_t i = 0; i < train.sequence + 4096; ++i)
    bytes.push_back(static_cast<char>(i * 2654435761U >> 16U));  // Knuth's multiplicative hash
  return bytes;
}

// Assumes: activations and gradients of a trained model's size matter to no host kernel's speed, only that they are
// normal numbers.
void make_up(std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01F * static_cast<float>(static_cast<int>(i % 13) - 6);
}

}  // namespace

HostExecutor::HostExecutor(const Program& program, const Transformer& transformer, const Train& train,
                           Rank rank, KernelLibrary library)
    : rank_(rank),
      text_(made_up_bytes(train)),
      work_(program, transformer, train, rank, library, [](const Kernel&, std::span<float>) {}) {
  for (const Stream& stream : work_.of_class().streams)
    for (const Instruction& instruction : stream.instructions)
      if (instruction.op == Op::send || instruction.op == Op::collective || instruction.op == Op::copy)
        sent_.insert(instruction.frees.begin(), instruction.frees.end());
  work_.begin_step(text_, steps_begun_++);
}

void HostExecutor::make_up_missing(int tensor, int micro_batch) {
  if (work_.memory().find(tensor, micro_batch) != nullptr) return;
  MemoryLedger ledger;
  work_.memory().allocate(tensor, micro_batch, ledger);
  make_up(work_.values(tensor, micro_batch));
}

void HostExecutor::make_up_missing(const Instruction& instruction) {
  const auto& kernels = work_.of_class().blocks[static_cast<std::size_t>(instruction.block)].kernels;
  std::set<int> made;
  for (int i = instruction.first_kernel; i < instruction.last_kernel; ++i) {
    const Kernel& kernel = kernels[static_cast<std::size_t>(i)];
    for (int id : kernel.in)
      if (!made.contains(id)) make_up_missing(id, instruction.micro_batch);
    for (int id : kernel.parameters) {
      const int gradient = work_.memory().gradient_of(id);
      if (reads_parameters(kernel.op)) make_up_missing(id, instruction.micro_batch);
      if (adds_gradients(kernel.op) && gradient >= 0 && !made.contains(gradient))
        make_up_missing(gradient, instruction.micro_batch);
    }
    made.insert(kernel.out.begin(), kernel.out.end());
  }
}

void HostExecutor::drop_sent(const Instruction& instruction) {
  for (int id : sent_)
    if (work_.memory().find(id, instruction.micro_batch) != nullptr) {
      MemoryLedger ledger;
      work_.memory().free(id, instruction.micro_batch, ledger);
    }
}

double HostExecutor::execute(const Step& step, const Instruction& instruction) {
  MOTLEY_CHECK(step.rank == rank_);
  MOTLEY_CHECK(instruction.op == Op::compute || instruction.op == Op::optimizer);
  if (instruction.op == Op::optimizer) {
    const double begin_s = monotonic_s();
    work_.optimize(instruction);
    const double end_s = monotonic_s();
    if (!instruction.tensors.empty()) return end_s - begin_s;
    work_.begin_step(text_, steps_begun_++);
    return end_s - begin_s;
  }
  make_up_missing(instruction);
  MemoryLedger ledger;
  const double begin_s = monotonic_s();
  work_.compute(instruction, ledger);
  const double end_s = monotonic_s();
  drop_sent(instruction);
  return end_s - begin_s;
}

}  // namespace motley
