#include "models/measured_kernels.hpp"

#include <fmt/format.h>

#include "models/refusal.hpp"

namespace motley {

MeasuredKernels::MeasuredKernels(const Program& program, const ProgramClass& of_class, const Chip& chip,
                                 const RingCost* tensor_ring)
    : program_(program), chip_(chip) {
  if (!any()) return;
  refuse_others(of_class);
  times_ = measured_times(chip, of_class.tensor_parallel, of_class.micro_batch);
  for (const Block& block : of_class.blocks)
    for (const Kernel& kernel : block.kernels)
      if (is_measured(kernel) && !kernel.recompute)
        modelled_[{kernel.layer, block.pass != Pass::forward}] +=
            kernel_time(kernel, program.precision, chip, tensor_ring).seconds;
}

double MeasuredKernels::factor(const Block& block, const Kernel& kernel) const {
  if (!any() || !is_measured(kernel)) return 1;
  const bool backward = block.pass != Pass::forward && !kernel.recompute;
  const auto found = modelled_.find({kernel.layer, backward});
  if (found == modelled_.end() || found->second <= 0) return 1;
  return measured_s(times_, place_of(kernel.layer), backward) / found->second;
}

double MeasuredKernels::optimizer_s(const ProgramClass& of_class) const {
  std::int64_t parts = (of_class.first_stage ? 1 : 0) + (of_class.last_stage ? 1 : 0);
  for (const Chunk& chunk : of_class.chunks) parts += chunk.last_layer - chunk.first_layer;
  return static_cast<double>(parts) * times_.optimizer_s;
}

bool MeasuredKernels::is_measured(const Kernel& kernel) const {
  return !is_collective(kernel.op) || (chip_.layers.communication && priced_in_computes(kernel));
}

LayerPlace MeasuredKernels::place_of(int layer) const {
  if (layer < 0) return LayerPlace::embedding;
  return layer < program_.layers ? LayerPlace::layer : LayerPlace::head;
}

void MeasuredKernels::refuse_others(const ProgramClass& of_class) const {
  if (of_class.context_parallel > 1)
    throw Refusal(
        Exit::infeasible, "not-measured", {},
        fmt::format("layers on `{}` were measured with whole sequences, not with parts over {} ranks",
                    chip_.name, of_class.context_parallel),
        "context_parallel 1, or leave `layers` out");
  if (!chip_.layers.communication) return;
  for (const Stream& stream : of_class.streams)
    for (const Instruction& instruction : stream.instructions)
      if (instruction.op == Op::collective && instruction.slot == kTensorGroup)
        throw Refusal(
            Exit::infeasible, "not-measured", {},
            fmt::format("layers on `{}` were measured with their tensor-parallel collectives, which "
                        "stand beside them here",
                        chip_.name),
            "`fidelity: {tensor_parallel: formula}` leaves them inside");
}

}  // namespace motley
