#include "models/cost/measured_kernels.hpp"

#include <fmt/format.h>

#include "models/base/refusal.hpp"

namespace motley {

MeasuredKernels::MeasuredKernels(const Program& program, const RankProgram& rank_program, const Chip& chip,
                                 const RingCost* tensor_ring)
    : program_(program), chip_(chip) {
  if (!any()) return;
  refuse_others(rank_program);
  times_ = measured_times(chip, rank_program.tensor_parallel, rank_program.micro_batch);
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      if (is_measured(kernel) && !kernel.recompute)
        modelled_[{kernel.layer, block.pass != Pass::forward}] +=
            kernel_time(rank_program, kernel, program.precision, chip, tensor_ring).seconds;
}

double MeasuredKernels::factor(const Block& block, const Kernel& kernel) const {
  if (!any() || !is_measured(kernel)) return 1;
  const bool backward = block.pass != Pass::forward && !kernel.recompute;
  const auto modelled = modelled_.find({kernel.layer, backward});
  if (modelled == modelled_.end() || modelled->second <= 0) return 1;
  return measured_s(times_, place_of(kernel.layer), backward) / modelled->second;
}

double MeasuredKernels::optimizer_s(const RankProgram& rank_program) const {
  std::int64_t parts = (rank_program.first_stage ? 1 : 0) + (rank_program.last_stage ? 1 : 0);
  for (const Chunk& chunk : rank_program.chunks) parts += chunk.last_layer - chunk.first_layer;
  return static_cast<double>(parts) * times_.optimizer_s;
}

bool MeasuredKernels::is_measured(const Kernel& kernel) const {
  return !is_collective(kernel.op) || (chip_.software.layers.communication && priced_in_computes(kernel));
}

LayerPlace MeasuredKernels::place_of(int layer) const {
  if (layer < 0) return LayerPlace::embedding;
  return layer < program_.layers ? LayerPlace::layer : LayerPlace::head;
}

void MeasuredKernels::refuse_others(const RankProgram& rank_program) const {
  if (rank_program.context_parallel > 1)
    throw Refusal(
        Exit::infeasible, "not-measured", {},
        fmt::format("layers on `{}` were measured with whole sequences, not with parts over {} ranks",
                    chip_.name, rank_program.context_parallel),
        "context_parallel 1, or leave `layers` out");
  if (!chip_.software.layers.communication) return;
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& instruction : stream.instructions)
      if (const auto* collective = instruction.as<Collective>();
          collective != nullptr && collective->slot == kTensorGroup)
        throw Refusal(
            Exit::infeasible, "not-measured", {},
            fmt::format("layers on `{}` were measured with their tensor-parallel collectives, which "
                        "stand beside them here",
                        chip_.name),
            "`fidelity: {tensor_parallel: formula}` leaves them inside");
}

}  // namespace motley
