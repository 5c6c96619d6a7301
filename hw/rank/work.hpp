// What one host rank computes: its tensors, its micro-batches, and the kernels of a compute or optimizer step on them.
// It never communicates: a collective inside a compute is handed to whoever runs it. Read next: hw/world.hpp (really
// trains), hw/executor.hpp (one rank alone, for Mixed).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "hw/data.hpp"
#include "hw/kernels/kernels.hpp"
#include "hw/memory.hpp"
#include "models/program.hpp"

namespace motley {

class RankWork {
 public:
  using Collective = std::function<void(const Kernel&, std::span<float>)>;  // in place
  // Keeps references to all but `train`. Fills the parameters with their first values.
  RankWork(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
           KernelLibrary library, Collective collective);

  // Elements of that parameter's or gradient's part, in the shard.
  std::vector<std::int64_t> elements(int tensor, int part, int parts) const;
  // Appends the values of that part to `into`; and writes them back from the first of `from`, returning the rest.
  void take_part(int tensor, int part, int parts, int micro_batch, std::vector<float>& into);
  std::span<const float> put_part(int tensor, int part, int parts, int micro_batch,
                                  std::span<const float> from);
  // Loads the micro-batches of a training step (from 0) and forgets the losses of the last.
  void begin_step(const Text& text, std::int64_t step);
  // Returns the floating-point operations done.
  double compute(const Instruction& instruction, MemoryLedger& ledger);
  // AdamW on every parameter whose state the chip keeps, or on those the instruction names, which the host does. The
  // gradients are zero afterwards; of the host's, which are copies, on the chip.
  void optimize(const Instruction& instruction);
  // Between what stands for the chip's memory and what stands for its host's. Returns bytes.
  std::int64_t copy(const Instruction& instruction, MemoryLedger& ledger);

  // Sum over the tokens of this rank's micro-batches since begin_step; 0 where this rank has no head or is not the
  // first of its tensor-parallel group.
  double loss_sum() const { return loss_sum_; }
  double extra_loss_sum() const { return extra_loss_sum_; }  // of what predicts further tokens, all modules
  Memory& memory() { return memory_; }
  std::span<float> values(int tensor, int micro_batch);
  const ProgramClass& of_class() const { return class_; }
  // Called with each kernel's outputs just after it ran; for tests and dumps. Not copied by anything.
  std::function<void(const Kernel&, int micro_batch)> observer;

 private:
  const Program& program_;
  const Rank rank_;
  const RankEntry& entry_;
  const ProgramClass& class_;
  const Train train_;
  const std::vector<Parameter> parameters_;
  KernelContext context_;
  Collective collective_;
  Memory memory_;
  // By micro-batch; by how far on they stand: tokens, targets, what further predictions are held against.
  std::vector<std::vector<std::vector<std::int32_t>>> tokens_;
  std::vector<std::int64_t> document_begins_;  // by place in a sequence; empty: one document
  std::int64_t steps_begun_ = 0;
  double loss_sum_ = 0, extra_loss_sum_ = 0;

  // Of one sequence, what this rank has of it; and of its tokens that stand `ahead` further on.
  void append_rows(const Text& text, std::int64_t step, std::int64_t sequence, std::int64_t micro_batch);
  std::vector<std::int32_t> drawn(const Text& text, std::int64_t step, std::int64_t sequence,
                                  std::int64_t ahead) const;
  void fill(int tensor, std::span<float> values) const;  // with a parameter's first values
  void fill_part(const Shard& shard, int into);
  // With the part of its gradients and parameters held in those tensors; -1: in the whole ones.
  void optimize(const Shard& shard, int gradient_part, int parameter_part);
  void optimize_on_chip();
  void optimize_scattered(const Shard& shard, std::size_t parameter, std::size_t first,
                          std::span<float> means, std::span<float> squares, std::span<const float> gradient);
  void clear_part(const Shard& shard);
  void step(int parameter, int gradient, int state);
  void clear(int tensor);
  void copy_part(const Instruction& instruction, bool down);
  double run(const Kernel& kernel, int micro_batch, MemoryLedger& ledger);
  KernelTensors tensors_of(const Kernel& kernel, int micro_batch, MemoryLedger& ledger);
};

}  // namespace motley
