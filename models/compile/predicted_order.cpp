#include "models/compile/predicted_order.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "models/base/index.hpp"
#include "models/check/memory_kept.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {
namespace {

// Bytes of what the chunk's weight gradients read, as a share of what its forward leaves to its backward.
double held_for_weights(const RankProgram& rank_program, ChunkId chunk) {
  std::set<TensorId> left, read, made;
  for (const Block& block : rank_program.blocks) {
    if (block.chunk != chunk || block.pass == Pass::forward) continue;
    for (const Kernel& kernel : block.kernels) {
      for (const TensorId id : kernel.in) {
        const TensorRole role = rank_program.tensors[id].role;
        if (role == TensorRole::activation) left.insert(id);
        if (only_weights(kernel) && per_micro_batch(role)) read.insert(id);
      }
      made.insert(kernel.out.begin(), kernel.out.end());
    }
  }
  double left_bytes = 0, read_bytes = 0;
  for (const TensorId id : left)
    if (!made.contains(id)) left_bytes += static_cast<double>(rank_program.tensors[id].bytes);
  for (const TensorId id : read) read_bytes += static_cast<double>(rank_program.tensors[id].bytes);
  return left_bytes > 0 ? read_bytes / left_bytes : 1;
}

// Predicted times of the passes of a template, whose ranks are added one by one.
class Prediction {
 public:
  // `kept`: the Program with its tensors as large as the software keeps them.
  Prediction(const Program& program, const Program& kept, const Cluster& cluster)
      : program_(program), kept_(kept), cluster_(cluster), costs_(program, cluster) {}

  void add(Rank rank) {
    const RankProgram& rank_program = program_.program_of(rank);
    const RankEntry& entry = program_.ranks[rank];
    for (PeerSlot slot : entry.peers.ids())
      times_.transfer_s = std::max(times_.transfer_s, transfer_s(rank, slot));
    std::optional<GroupId> group;
    if (!entry.groups.empty()) group = entry.groups[kTensorGroup];
    const RingCost* ring = group ? &costs_.ring(*group) : nullptr;
    if (!known_.insert({entry.rank_program, cluster_.chip_group[at(entry.chip)], ring}).second) return;
    for (ChunkId chunk : rank_program.chunks.ids()) {
      const auto stage = at(rank_program.chunks[chunk].virtual_stage);
      if (stage >= times_.stages.size()) times_.stages.resize(stage + 1, {0, 0, 0, 0});
      const PassTimes times = times_of(rank, chunk);
      PassTimes& slowest = times_.stages[stage];
      slowest.forward_s = std::max(slowest.forward_s, times.forward_s);
      slowest.input_gradient_s = std::max(slowest.input_gradient_s, times.input_gradient_s);
      slowest.weight_gradient_s = std::max(slowest.weight_gradient_s, times.weight_gradient_s);
      slowest.held_for_weights =
          std::max(slowest.held_for_weights, held_for_weights(kept_.program_of(rank), chunk));
    }
  }
  ScheduleTimes take() { return std::move(times_); }

 private:
  // A chunk may have a whole backward, a split backward, or both; both have the same kernels.
  PassTimes times_of(Rank rank, ChunkId chunk) {
    const auto& blocks = program_.program_of(rank).blocks;
    const bool whole = std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return block.chunk == chunk && block.pass == Pass::backward;
    });
    PassTimes times{0, 0, 0, 0};
    for (BlockId id : blocks.ids()) {
      const Block& block = blocks[id];
      if (block.chunk != chunk) continue;
      const auto kernels = static_cast<int>(block.kernels.size());
      if (block.pass == Pass::forward) {
        times.forward_s += seconds(rank, {id, 0, kernels});
      } else if (!whole || block.pass == Pass::backward) {
        for (int k = 0; k < kernels; ++k)
          (only_weights(block.kernels[at(k)]) ? times.weight_gradient_s : times.input_gradient_s) +=
              seconds(rank, {id, k, k + 1});
      }
    }
    return times;
  }
  double seconds(Rank rank, const Compute& compute) {
    Instruction instruction;
    instruction.body = compute;
    return costs_.price(rank, instruction).seconds();
  }
  double transfer_s(Rank from, PeerSlot slot) const {
    const RankEntry& entry = program_.ranks[from];
    const std::optional<Rank> peer = entry.peers[slot];
    if (!peer) return 0;
    const RankProgram& rank_program = program_.program_of(from);
    const std::optional<TensorId> moved = boundary_tensor(
        rank_program, chunk_of(rank_program, slot),
        is_next(slot) ? TensorUse::chunk_output : TensorUse::chunk_input, TensorRole::activation);
    if (!moved) return 0;
    const Route path = route(cluster_, entry.chip, program_.ranks[*peer].chip);
    return path.latency_s + static_cast<double>(rank_program.tensors[*moved].bytes) / path.bandwidth;
  }

  const Program &program_, &kept_;
  const Cluster& cluster_;
  CostTable costs_;
  std::set<std::tuple<RankProgramId, int, const RingCost*>>
      known_;  // ranks that are equal in these take the same times
  ScheduleTimes times_;
};

}  // namespace

bool only_weights(const Kernel& kernel) {
  return kernel.op == KernelOp::matmul_weight_gradient ||
         kernel.op == KernelOp::grouped_matmul_weight_gradient ||
         kernel.op == KernelOp::add_residual_backward || kernel.op == KernelOp::embed_backward;
}

Timetable timetable_of(const Program& program, int pipeline) {
  Timetable timetable;
  for (const RankProgram& rank_program : program.rank_programs) {
    if (rank_program.pipeline != pipeline) continue;
    auto& actions = timetable.ranks.emplace_back();
    for (const Instruction& instruction : rank_program.streams[kComputeStream].instructions) {
      const Compute* compute = instruction.as<Compute>();
      if (compute == nullptr || compute->first_kernel != 0) continue;  // only a first piece counts
      const Block& block = rank_program.blocks[compute->block];
      actions.push_back(
          {block.pass, rank_program.chunks[block.chunk].virtual_stage, instruction.micro_batch});
    }
  }
  return timetable;
}

bool depends_on_times(Schedule schedule) {
  return schedule == Schedule::zb_h1 || schedule == Schedule::zb_h2 || schedule == Schedule::zb_v;
}

ScheduleTimes predicted_times(const Program& program, const Cluster& cluster, int pipeline) {
  const Program kept = as_kept(program, cluster);
  Prediction prediction(program, kept, cluster);
  for (Rank rank : program.ranks.ids())
    if (program.program_of(rank).pipeline == pipeline) prediction.add(rank);
  return prediction.take();
}

}  // namespace motley
