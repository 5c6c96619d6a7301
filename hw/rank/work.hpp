// What one host rank computes: its tensors, its micro-batches, and the kernels of a compute or optimizer step on them.
// It never communicates: a collective inside a compute is handed to whoever runs it. Read next:
// hw/world/real_world.hpp (really trains), hw/rank/executor.hpp (one rank alone, for Mixed).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hw/kernels/run_kernel.hpp"
#include "hw/rank/data.hpp"
#include "hw/rank/memory.hpp"
#include "models/program/program.hpp"

namespace motley {

class RankWork {
 public:
  using RunTensorCollective = std::function<void(const Kernel&, std::span<float>)>;  // in place
  // Keeps references to all but `train`. Fills the parameters with their first values.
  RankWork(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
           KernelLibrary library, RunTensorCollective run_tensor_collective);

  // Elements of that parameter's or gradient's part, in the shard.
  std::vector<std::int64_t> elements(TensorId tensor, int part, int parts) const;
  // Appends the values of that part to `into`; and writes them back from the first of `from`, returning the rest.
  void take_part(TensorId tensor, int part, int parts, std::int32_t micro_batch, std::vector<float>& into);
  std::span<const float> put_part(TensorId tensor, int part, int parts, std::int32_t micro_batch,
                                  std::span<const float> from);
  // Loads the micro-batches of a training step (from 0) and forgets the losses of the last.
  void begin_step(const Text& text, std::int64_t step);
  // Returns the floating-point operations done.
  double compute(const Compute& compute, std::int32_t micro_batch, MemoryLedger& ledger);
  // AdamW on every parameter whose state the chip keeps, or on those that the step names, which the host does. The
  // gradients are zero afterwards; the host's, which are copies, are zeroed on the chip.
  void optimize(const OptimizerStep& optimizer_step);
  // A Copy: between what stands for the chip's memory and what stands for its host's. Returns bytes.
  std::int64_t copy(const Instruction& instruction, MemoryLedger& ledger);

  // Sum over the tokens of this rank's micro-batches since begin_step; 0 where this rank has no head or is not the
  // first of its tensor-parallel group.
  double loss_sum() const { return loss_sum_; }
  double extra_loss_sum() const { return extra_loss_sum_; }  // of what predicts further tokens, all modules
  Memory& memory() { return memory_; }
  std::span<float> values(TensorId tensor, std::int32_t micro_batch);
  const RankProgram& rank_program() const { return rank_program_; }
  // Called with each kernel's outputs just after it ran; for tests and dumps. Not copied by anything.
  std::function<void(const Kernel&, std::int32_t micro_batch)> observer;

 private:
  const Program& program_;
  const Rank rank_;
  const RankEntry& entry_;
  const RankProgram& rank_program_;
  const Train train_;
  const std::vector<Parameter> parameters_;
  KernelContext context_;
  RunTensorCollective run_tensor_collective_;
  Memory memory_;
  // By micro-batch; by how far on they stand: tokens, targets, what further predictions are held against.
  std::vector<std::vector<std::vector<std::int32_t>>> tokens_;
  std::vector<std::int64_t> document_begins_;  // by place in a sequence; empty: one document
  std::int64_t steps_begun_ = 0;
  double loss_sum_ = 0, extra_loss_sum_ = 0;

  void set_context(const Transformer& transformer, KernelLibrary library);
  void fill_parameters();
  void fill(TensorId tensor, std::span<float> values) const;  // with a parameter's first values
  void fill_part(const Shard& shard, TensorId into);
  const Parameter& parameter_of(TensorId tensor) const;
  const Group& members_of(const Shard& shard) const;
  // Appends to the micro-batch's tokens, targets and further targets this rank's rows of one sequence.
  void append_rows(const Text& text, std::int64_t step, std::int64_t sequence, std::int64_t micro_batch);
  // The sequence's tokens that stand `ahead` further on.
  std::vector<std::int32_t> drawn(const Text& text, std::int64_t step, std::int64_t sequence,
                                  std::int64_t ahead) const;
  // With the part of its gradients and parameters held in those tensors; none: in the whole ones.
  void optimize(const Shard& shard, std::optional<TensorId> gradient_part,
                std::optional<TensorId> parameter_part);
  void optimize_on_chip();
  void optimize_scattered(const Shard& shard, std::size_t parameter, std::size_t first,
                          std::span<float> means, std::span<float> squares, std::span<const float> gradient);
  void clear_part(const Shard& shard);
  void step(TensorId parameter, TensorId gradient, TensorId state);
  void clear(TensorId tensor);
  void copy_part(const Copy& copy, bool down);
  double run(const Kernel& kernel, std::int32_t micro_batch, MemoryLedger& ledger);
  KernelTensors tensors_of(const Kernel& kernel, std::int32_t micro_batch, MemoryLedger& ledger);
};

}  // namespace motley
