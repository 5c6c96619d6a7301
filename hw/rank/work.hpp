// What one host rank computes: its tensors, its micro-batches, and the kernels of computes and optimizer steps on them.
// It never communicates: it hands a collective inside a compute to its caller (RunTensorCollective). Read next:
// hw/world/real_world.hpp (really trains), hw/rank/executor.hpp (one rank alone, for Mixed).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hw/kernels/run_kernel.hpp"
#include "hw/rank/data.hpp"
#include "hw/rank/memory.hpp"
#include "models/program/program.hpp"
#include "models/world/world.hpp"

namespace motley {

class RankWork {
 public:
  using RunTensorCollective = std::function<void(const Kernel&, std::span<float>)>;  // works in place
  // Keeps references to all arguments but `train`. Fills the parameters with their first values.
  RankWork(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
           KernelLibrary library, RunTensorCollective run_tensor_collective);

  // The indices, in the shard, of the elements that belong to a part of a parameter or gradient.
  std::vector<std::int64_t> elements(TensorId tensor, int part, int parts) const;
  // take_part() appends the values of a part to `into`. put_part() writes them back from the first values of `from` and
  // returns the rest of `from`.
  void take_part(TensorId tensor, int part, int parts, std::int32_t micro_batch, std::vector<float>& into);
  std::span<const float> put_part(TensorId tensor, int part, int parts, std::int32_t micro_batch,
                                  std::span<const float> from);
  // Loads the micro-batches of a training step, counted from 0, and forgets the losses of the step before.
  void begin_step(const Text& text, std::int64_t step);
  // Returns the floating-point operations done. `spans`: where to append when each kernel ran; null: nowhere.
  double compute(const Compute& compute, std::int32_t micro_batch, MemoryLedger& ledger,
                 std::vector<KernelSpan>* spans = nullptr);
  // Runs AdamW on every parameter whose state is on the chip, or on those that the step names, whose state is on the
  // host. Gradients on the chip are zero afterwards; those that the host uses were zeroed when they were copied to it.
  void optimize(const OptimizerStep& optimizer_step);
  // Performs a Copy between the tensors that stand for the chip's memory and those that stand for its host's. Returns
  // bytes.
  std::int64_t copy(const Instruction& instruction, MemoryLedger& ledger);

  // The sum of losses over the tokens of this rank's micro-batches since begin_step; 0 if this rank has no head or is
  // not the first of its tensor-parallel group.
  double loss_sum() const { return loss_sum_; }
  // The same for all modules that predict further tokens.
  double extra_loss_sum() const { return extra_loss_sum_; }
  // The number of this rank's tokens that go to each expert, by micro-batch and layer, since begin_step.
  using Routed = std::map<std::pair<std::int32_t, int>, std::vector<std::int32_t>>;
  const Routed& routed() const { return routed_; }
  // Everything that a compute changes, or, where none is given, that an optimizer step changes.
  struct Saved {
    Memory::Saved memory;
    double loss_sum = 0, extra_loss_sum = 0;
  };
  Saved save(const Compute* compute, std::int32_t micro_batch) const;
  void restore(const Saved& saved);
  Memory& memory() { return memory_; }
  std::span<float> values(TensorId tensor, std::int32_t micro_batch);
  // Writes the first values of a parameter into a tensor that holds it, also into one that was gathered.
  void fill(TensorId tensor, std::span<float> values) const;
  const RankProgram& rank_program() const { return rank_program_; }
  // Called just after a kernel ran, while its outputs still exist; for tests and dumps.
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
  // Indexed by micro-batch, then by `ahead`: 0 has the tokens, 1 the targets, 2 and above the targets of the modules
  // that predict further tokens.
  std::vector<std::vector<std::vector<std::int32_t>>> tokens_;
  // For each place of a sequence, where its document begins; empty: a sequence is one document.
  std::vector<std::int64_t> document_begins_;
  std::int64_t steps_begun_ = 0;
  double loss_sum_ = 0, extra_loss_sum_ = 0;
  Routed routed_;

  void set_context(const Transformer& transformer, KernelLibrary library);
  void fill_parameters();
  void fill_part(const Shard& shard, TensorId into);
  const Parameter& parameter_of(TensorId tensor) const;
  const Group& members_of(const Shard& shard) const;
  // Appends this rank's rows of one sequence to tokens_[micro_batch].
  void append_rows(const Text& text, std::int64_t step, std::int64_t sequence, std::int64_t micro_batch);
  // The tokens that stand `ahead` places after those of the sequence.
  std::vector<std::int32_t> drawn(const Text& text, std::int64_t step, std::int64_t sequence,
                                  std::int64_t ahead) const;
  // `gradient_part`, `parameter_part`: the tensors that hold this rank's part of the gradients and parameters; none:
  // the part lies in the whole tensors.
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
  void note_routed(const Kernel& route, std::int32_t micro_batch);
  KernelTensors tensors_of(const Kernel& kernel, std::int32_t micro_batch, MemoryLedger& ledger);
};

}  // namespace motley
