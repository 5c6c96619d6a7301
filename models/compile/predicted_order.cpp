#include "models/schedule_program.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "models/compile_passes.hpp"
#include "models/compute_cost.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

class Prediction {
 public:
  Prediction(const Program& program, const Cluster& cluster)
      : program_(program), cluster_(cluster), costs_(program, cluster) {}

  void add(Rank rank) {
    const ProgramClass& of_class = program_.class_of(rank);
    const RankEntry& entry = program_.ranks[at(rank)];
    for (int slot = 0; slot < static_cast<int>(entry.peers.size()); ++slot)
      times_.transfer_s = std::max(times_.transfer_s, transfer_s(rank, slot));
    const int group = entry.groups.empty() ? -1 : entry.groups[kTensorGroup];
    const RingCost* ring = group < 0 ? nullptr : &costs_.ring(group);
    if (!known_.insert({entry.of_class, cluster_.chip_group[at(entry.chip)], ring}).second) return;
    for (std::size_t chunk = 0; chunk < of_class.chunks.size(); ++chunk) {
      const auto stage = at(of_class.chunks[chunk].virtual_stage);
      if (stage >= times_.stages.size()) times_.stages.resize(stage + 1, {0, 0, 0});
      const PassTimes times = times_of(rank, static_cast<int>(chunk));
      PassTimes& slowest = times_.stages[stage];
      slowest.forward_s = std::max(slowest.forward_s, times.forward_s);
      slowest.input_gradient_s = std::max(slowest.input_gradient_s, times.input_gradient_s);
      slowest.weight_gradient_s = std::max(slowest.weight_gradient_s, times.weight_gradient_s);
    }
  }
  ScheduleTimes take() { return std::move(times_); }

 private:
  // A chunk may have a whole backward, a split one, or both, of the same kernels.
  PassTimes times_of(Rank rank, int chunk) {
    const auto& blocks = program_.class_of(rank).blocks;
    const bool whole = std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return block.chunk == chunk && block.pass == Pass::backward;
    });
    PassTimes times{0, 0, 0};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].chunk != chunk) continue;
      if (blocks[i].pass == Pass::forward) {
        times.forward_s += seconds(rank, static_cast<int>(i), 0, static_cast<int>(blocks[i].kernels.size()));
      } else if (!whole || blocks[i].pass == Pass::backward) {
        for (std::size_t k = 0; k < blocks[i].kernels.size(); ++k) {
          const double kernel_s =
              seconds(rank, static_cast<int>(i), static_cast<int>(k), static_cast<int>(k) + 1);
          (only_weights(blocks[i].kernels[k]) ? times.weight_gradient_s : times.input_gradient_s) += kernel_s;
        }
      }
    }
    return times;
  }
  double seconds(Rank rank, int block, int first_kernel, int last_kernel) {
    Instruction compute;
    compute.block = block;
    compute.first_kernel = first_kernel;
    compute.last_kernel = last_kernel;
    return costs_.of(rank, compute).seconds();
  }
  double transfer_s(Rank from, int slot) const {
    const RankEntry& entry = program_.ranks[at(from)];
    if (entry.peers[at(slot)] < 0) return 0;
    const ProgramClass& of_class = program_.class_of(from);
    const std::string moved = boundary_name(of_class, slot / 2 % static_cast<int>(of_class.chunks.size()),
                                            is_next(slot) ? "output" : "input");
    for (const Tensor& tensor : of_class.tensors)
      if (tensor.name == moved) {
        const Route path = route(cluster_, entry.chip, program_.ranks[at(entry.peers[at(slot)])].chip);
        return path.latency_s + static_cast<double>(tensor.bytes) / path.bandwidth;
      }
    return 0;
  }

  const Program& program_;
  const Cluster& cluster_;
  CostTable costs_;
  std::set<std::tuple<int, int, const RingCost*>> known_;  // ranks alike in these take the same times
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
  for (const ProgramClass& of_class : program.classes) {
    if (of_class.pipeline != pipeline) continue;
    auto& actions = timetable.ranks.emplace_back();
    for (const Instruction& instruction : of_class.streams[0].instructions) {
      if (instruction.op != Op::compute || instruction.first_kernel != 0) continue;  // later pieces of one
      const Block& block = of_class.blocks[at(instruction.block)];
      actions.push_back(
          {block.pass, of_class.chunks[at(block.chunk)].virtual_stage, instruction.micro_batch});
    }
  }
  return timetable;
}

bool depends_on_times(Schedule schedule) {
  return schedule == Schedule::zb_h1 || schedule == Schedule::zb_h2 || schedule == Schedule::zb_v;
}

ScheduleTimes predicted_times(const Program& program, const Cluster& cluster, int pipeline) {
  Prediction prediction(program, cluster);
  for (Rank rank = 0; rank < program.rank_count(); ++rank)
    if (program.class_of(rank).pipeline == pipeline) prediction.add(rank);
  return prediction.take();
}

}  // namespace motley
