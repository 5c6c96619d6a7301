// Pass "optimizer": the optimizer step, when every gradient is complete, and the gathers of parameters renewed in
// parts.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"

namespace motley {
namespace {

// Gathers parameters that are held whole but renewed in parts by the members of the group.
Instruction gather_of(const RankProgram& rank_program, ShardId id) {
  const Shard& shard = rank_program.shards[id];
  Collective gather = collective_on(rank_program, id, CollectiveKind::all_gather, shard.gather_slot);
  gather.tensors = shard.parameters;
  for (const TensorId parameter : shard.parameters)
    gather.bytes += rank_program.tensors[parameter].bytes / shard.parts;
  Instruction instruction;
  instruction.body = std::move(gather);
  return instruction;
}

void gather_after_step(RankProgram& rank_program) {
  const int optimizer = static_cast<int>(rank_program.streams[kComputeStream].instructions.size()) - 1;
  for (const ShardId id : rank_program.shards.ids()) {
    if (rank_program.shards[id].parameter_part) continue;
    Instruction gather = gather_of(rank_program, id);
    gather.after = {{kComputeStream, optimizer}};
    const StreamId stream = stream_of(rank_program, StreamKind::gather);
    rank_program.streams[stream].instructions.push_back(std::move(gather));
  }
}

// The first kernel of a step that reads any of the shard's parameters, as the end of the kernels that may run before
// it.
std::optional<ComputePoint> first_read(const RankProgram& rank_program, const Shard& shard) {
  const auto& instructions = rank_program.streams[kComputeStream].instructions;
  const std::set<TensorId> wanted(shard.parameters.begin(), shard.parameters.end());
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Compute* const compute = instructions[i].as<Compute>();
    if (compute == nullptr) continue;
    const auto& kernels = rank_program.blocks[compute->block].kernels;
    for (int k = compute->first_kernel; k < compute->last_kernel; ++k)
      if (reads_parameters(kernels[at(k)].op))
        for (const TensorId id : kernels[at(k)].parameters)
          if (wanted.contains(id)) return ComputePoint{static_cast<int>(i), k};
  }
  return std::nullopt;
}

// Inserts instructions before all others of a stream.
void insert_first(RankProgram& rank_program, StreamId into, std::vector<Instruction> first) {
  const auto count = static_cast<int>(first.size());
  for (Stream& stream : rank_program.streams)
    for (Instruction& instruction : stream.instructions)
      for (After& after : instruction.after)
        if (after.stream == into) after.index += count;
  auto& instructions = rank_program.streams[into].instructions;
  instructions.insert(instructions.begin(), std::make_move_iterator(first.begin()),
                      std::make_move_iterator(first.end()));
}

// Gathers the parameters that the step before renewed, from the first layer to the last; shards stand in the opposite
// order. The first step gathers initial values, which all ranks hold already. These gathers come before those of each
// use (zero 3), which wait for computes that read what is gathered here.
void gather_before_use(RankProgram& rank_program) {
  std::vector<ComputePoint> cuts;
  for (const Shard& shard : rank_program.shards)
    if (!shard.parameter_part)
      if (const auto read = first_read(rank_program, shard)) cuts.push_back(*read);
  cut_computes(rank_program, cuts);
  std::vector<Instruction> gathers;
  std::vector<std::pair<int, int>> awaited;  // index of a compute, and of the gather for which it waits
  for (std::size_t s = rank_program.shards.size(); s-- > 0;) {
    const Shard& shard = rank_program.shards[ShardId(s)];
    if (shard.parameter_part) continue;
    if (const auto read = first_read(rank_program, shard))
      awaited.emplace_back(read->index, static_cast<int>(gathers.size()));
    gathers.push_back(gather_of(rank_program, ShardId(s)));
  }
  if (gathers.empty()) return;
  const StreamId stream = stream_of(rank_program, StreamKind::gather);
  insert_first(rank_program, stream, std::move(gathers));
  for (const auto& [compute, gather] : awaited)
    rank_program.streams[kComputeStream].instructions[at(compute)].after.push_back({stream, gather});
}

// FLOPs by which Muon orthogonalises the matrices of a rank program; those of a shard, its part of them.
// Assumes: a rank orthogonalises the cut of a matrix that it holds. Replicas that divide the state divide this work,
// and what they send each other for it (arXiv:2502.16982, section 2.3) is not counted.
double muon_flops(const Job& job, const RankProgram& rank_program) {
  if (job.train.optimizer != Optimizer::muon) return 0;
  const auto all = parameters(job.transformer);
  std::map<int, double> shares;  // by parameter; 1 where it is not divided
  for (const Tensor& tensor : rank_program.tensors)
    if (tensor.role == TensorRole::optimizer && tensor.parameter && !tensor.on_host)
      shares[*tensor.parameter] = 1;
  for (const Shard& shard : rank_program.shards) {
    if (rank_program.tensors[shard.optimizer].on_host) continue;
    double elements = 0;
    for (const TensorId id : shard.parameters)
      elements += static_cast<double>(rank_program.tensors[id].bytes / bytes_of(job.train.precision));
    for (const TensorId id : shard.parameters)
      shares[rank_program.tensors[id].parameter.value()] +=
          static_cast<double>(rank_program.tensors[shard.optimizer].shape[1]) / elements;
  }
  std::map<int, const Tensor*> whole;
  for (const Tensor& tensor : rank_program.tensors)
    if ((tensor.role == TensorRole::parameter || tensor.role == TensorRole::gathered) && tensor.parameter)
      whole[*tensor.parameter] = &tensor;
  double flops = 0;
  for (const auto& [index, share] : shares) {
    const Parameter& parameter = all[at(index)];
    flops += share * orthogonalization_flops(parameter.experts > 0
                                                 ? part_of_experts(parameter, rank_program.expert_parallel)
                                                 : parameter,
                                             whole.at(index)->shape);
  }
  return flops;
}

}  // namespace

void add_optimizer(const Job& job, Program& program) {
  for (RankProgram& rank_program : program.rank_programs) {
    Instruction step;
    step.body = OptimizerStep{};
    step.flops = muon_flops(job, rank_program);
    if (const auto reduced = find_stream(rank_program, StreamKind::collective)) {
      const auto& reductions = rank_program.streams[*reduced].instructions;
      step.after.push_back({*reduced, static_cast<int>(reductions.size()) - 1});
    }
    rank_program.streams[kComputeStream].instructions.push_back(step);
    if (job.strategy.overlap_parameters)
      gather_before_use(rank_program);
    else
      gather_after_step(rank_program);
  }
}

}  // namespace motley
