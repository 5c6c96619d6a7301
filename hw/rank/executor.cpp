#include "hw/rank/executor.hpp"

#include <algorithm>

#include "hw/collective/ring.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Text that contains every byte value, so that each of the first 256 rows of the vocabulary is looked up.
std::string made_up_bytes(const Train& train) {
  std::string bytes;
  for (std::int64_t i = 0; i < train.sequence + 4096; ++i)
    bytes.push_back(static_cast<char>(i * 2654435761U >> 16U));  // Knuth's multiplicative hash
  return bytes;
}

// Assumes: the values of activations and gradients change the speed of a host kernel little, as long as they are normal
// numbers. (GELU moves a third fewer bytes a second in models 768 wide than 64 wide, whose values are smaller: measured
// 2026-11.)
void make_up(std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01F * static_cast<float>(static_cast<int>(i % 13) - 6);
}

// What the other members of a gather would have brought is a copy of what this rank brings: kernels are slower or
// faster where they meet numbers that are not normal.
void fill_others(const Group& group, Rank rank, std::span<float> values) {
  const std::size_t size = (values.size() + group.ranks.size() - 1) / group.ranks.size();
  const std::size_t place = place_in(group, rank);
  const std::span<const float> own = part(values, place, group.ranks.size());
  if (own.empty()) return;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i / size != place) values[i] = own[i % own.size()];
}

void fill_others(const Program& program, Rank rank, const Kernel& kernel, std::span<float> values) {
  if (kernel.op != KernelOp::all_gather || !program.ranks[rank].groups[kTensorGroup]) return;
  fill_others(program.groups[*program.ranks[rank].groups[kTensorGroup]], rank, values);
}

}  // namespace

HostExecutor::HostExecutor(const Program& program, const Transformer& transformer, const Train& train,
                           Rank rank, KernelLibrary library)
    : program_(program),
      rank_(rank),
      text_(made_up_bytes(train)),
      work_(program, transformer, train, rank, library,
            [&program, rank](const Kernel& kernel, std::span<float> values) {
              fill_others(program, rank, kernel, values);
            }) {
  for (const Stream& stream : work_.rank_program().streams)
    for (const Instruction& instruction : stream.instructions)
      if (const Op op = instruction.op(); op == Op::send || op == Op::collective || op == Op::copy)
        sent_.insert(instruction.frees.begin(), instruction.frees.end());
  for (const Stream& stream : work_.rank_program().streams)
    for (const Instruction& instruction : stream.instructions)
      if (const Collective* const gather = instruction.as<Collective>();
          gather != nullptr && gather->kind == CollectiveKind::all_gather && !gather->shard)
        for (const TensorId id : gather->tensors)
          if (const auto group = program.ranks[rank].groups[gather->slot]) gathered_.emplace(id, *group);
  work_.begin_step(text_, steps_begun_++);
}

void HostExecutor::make_up_missing(TensorId tensor, std::int32_t micro_batch) {
  if (work_.memory().find(tensor, micro_batch) != nullptr) return;
  MemoryLedger ledger;
  work_.memory().allocate(tensor, micro_batch, ledger);
  make_up(work_.values(tensor, micro_batch));
}

void HostExecutor::make_up_missing(const Compute& compute, std::int32_t micro_batch) {
  const auto& kernels = work_.rank_program().blocks[compute.block].kernels;
  std::set<TensorId> written;  // the tensors that earlier kernels of the compute write
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    for (const TensorId id : kernel.in)
      if (!written.contains(id)) make_up_missing(id, micro_batch);
    for (const TensorId id : kernel.parameters) {
      const std::optional<TensorId> gradient = work_.memory().gradient_of(id);
      if (reads_parameters(kernel.op)) make_up_missing(id, micro_batch);
      if (adds_gradients(kernel.op) && gradient && !written.contains(*gradient))
        make_up_missing(*gradient, micro_batch);
    }
    written.insert(kernel.out.begin(), kernel.out.end());
    // A gathered parameter is freed by the last kernel that has it, even if no kernel of this rank reads it.
    for (const TensorId id : kernel.frees)
      if (!written.contains(id)) make_up_missing(id, micro_batch);
  }
}

void HostExecutor::drop_sent(std::int32_t micro_batch) {
  for (const TensorId id : sent_)
    if (work_.memory().find(id, micro_batch) != nullptr) {
      MemoryLedger ledger;
      work_.memory().free(id, micro_batch, ledger);
    }
}

// An all_gather instruction follows the compute that writes this rank's part of its tensor. (After an all_to_all, what
// this rank meant to send is as good as what it would have received: as many tokens, on average.)
void HostExecutor::fill_gathered(const Compute& compute, std::int32_t micro_batch) {
  const auto& kernels = work_.rank_program().blocks[compute.block].kernels;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i)
    for (const TensorId id : kernels[at(i)].out)
      if (const auto group = gathered_.find(id);
          group != gathered_.end() && work_.memory().find(id, micro_batch) != nullptr)
        fill_others(program_.groups[group->second], rank_, work_.values(id, micro_batch));
}

double HostExecutor::execute(const Step& step, const Instruction& instruction) {
  MOTLEY_CHECK(step.rank == rank_);
  if (const OptimizerStep* const optimizer_step = instruction.as<OptimizerStep>())
    return execute(*optimizer_step);
  const Compute* const compute = instruction.as<Compute>();
  MOTLEY_CHECK(compute != nullptr);
  return execute(*compute, instruction.micro_batch);
}

double HostExecutor::execute(const OptimizerStep& optimizer_step) {
  const double begin_s = monotonic_s();
  work_.optimize(optimizer_step);
  const double end_s = monotonic_s();
  if (optimizer_step.tensors.empty())  // this is the chip's own optimizer step, which ends a training step
    work_.begin_step(text_, steps_begun_++);
  return end_s - begin_s;
}

double HostExecutor::execute(const Compute& compute, std::int32_t micro_batch) {
  make_up_missing(compute, micro_batch);
  MemoryLedger ledger;
  kernels_.clear();
  const double begin_s = monotonic_s();
  work_.compute(compute, micro_batch, ledger, &kernels_);
  const double end_s = monotonic_s();
  fill_gathered(compute, micro_batch);
  drop_sent(micro_batch);
  return end_s - begin_s;
}

}  // namespace motley
