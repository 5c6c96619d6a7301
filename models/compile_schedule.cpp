// Pass "schedule": each stage's computes in the order of the strategy's schedule (models/schedule.hpp). Where a
// backward is split, its kernels are: those that only add to weights' gradients become a block of their own, and
// what they read lives until then. When weight gradients run is decided here, from what computes and transfers are
// predicted to take on these chips, and stands in the Program from then on.
#include <algorithm>

#include "models/compile_passes.hpp"
#include "models/compute_cost.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Nothing but weights' gradients comes of it, so nobody waits for it.
bool only_weights(const Kernel& kernel) {
  return kernel.op == KernelOp::matmul_weight_gradient || kernel.op == KernelOp::add_residual_backward ||
         kernel.op == KernelOp::embed_backward;
}

// Splits the chunk's backward into its input gradient and, at the end of the blocks, its weight gradient.
void split_backward(ProgramClass& of_class, int chunk) {
  Block& input = of_class.blocks[at(block_of(of_class, Pass::backward, chunk))];
  Block weight;
  weight.pass = Pass::weight_gradient;
  weight.chunk = chunk;
  weight.name = block_name(of_class, weight.pass, chunk);
  std::vector<Kernel> whole = std::move(input.kernels);
  input.pass = Pass::input_gradient;
  input.name = block_name(of_class, input.pass, chunk);
  input.kernels.clear();
  for (Kernel& kernel : whole) (only_weights(kernel) ? weight : input).kernels.push_back(std::move(kernel));
  of_class.blocks.push_back(std::move(weight));
}

// Where the backward is whole for some micro-batches and split for others, the chunk has all three blocks.
void add_split_blocks(ProgramClass& of_class, int chunk, bool keep_whole) {
  const int index = block_of(of_class, Pass::backward, chunk);
  const Block whole = of_class.blocks[at(index)];
  split_backward(of_class, chunk);
  if (keep_whole) of_class.blocks.insert(of_class.blocks.begin() + index, whole);
}

Instruction compute_of(const ProgramClass& of_class, int block, int micro_batch) {
  Instruction compute;
  compute.op = Op::compute;
  compute.micro_batch = micro_batch;
  compute.block = block;
  compute.last_kernel = static_cast<int>(of_class.blocks[at(block)].kernels.size());
  return compute;
}

// What the passes of each virtual stage of a pipeline are predicted to take, on its slowest replica; its backwards are
// whole yet. Assumes: a transfer has the route to itself.
class Prediction {
 public:
  Prediction(const Job& job, const Program& program, int pipeline)
      : job_(job), program_(program), costs_(program, job.cluster) {
    for (Rank rank = 0; rank < program.rank_count(); ++rank)
      if (program.class_of(rank).pipeline == pipeline) add(rank);
  }
  ScheduleTimes take() { return std::move(times_); }

 private:
  void add(Rank rank) {
    const ProgramClass& of_class = program_.class_of(rank);
    for (std::size_t chunk = 0; chunk < of_class.chunks.size(); ++chunk) {
      const auto stage = at(of_class.chunks[chunk].virtual_stage);
      if (stage >= times_.stages.size()) times_.stages.resize(stage + 1, {0, 0, 0});
      PassTimes& slowest = times_.stages[stage];
      const int index = static_cast<int>(chunk);
      const int forward = block_of(of_class, Pass::forward, index);
      const int backward = block_of(of_class, Pass::backward, index);
      slowest.forward_s = std::max(slowest.forward_s, seconds(rank, forward, 0, size_of(of_class, forward)));
      double weight_s = 0;
      const auto& kernels = of_class.blocks[at(backward)].kernels;
      for (int i = 0; i < size_of(of_class, backward); ++i)
        if (only_weights(kernels[at(i)])) weight_s += seconds(rank, backward, i, i + 1);
      const double whole_s = seconds(rank, backward, 0, size_of(of_class, backward));
      slowest.weight_gradient_s = std::max(slowest.weight_gradient_s, weight_s);
      slowest.input_gradient_s = std::max(slowest.input_gradient_s, whole_s - weight_s);
    }
    for (const Rank peer : program_.ranks[at(rank)].peers)
      if (peer >= 0) times_.transfer_s = std::max(times_.transfer_s, transfer_s(rank, peer));
  }
  static int size_of(const ProgramClass& of_class, int block) {
    return static_cast<int>(of_class.blocks[at(block)].kernels.size());
  }
  double seconds(Rank rank, int block, int first, int last) {
    if (first == last) return 0;
    Instruction compute = compute_of(program_.class_of(rank), block, 0);
    compute.first_kernel = first;
    compute.last_kernel = last;
    return costs_.of(rank, compute).seconds();
  }
  double transfer_s(Rank from, Rank to) const {
    const ProgramClass& of_class = program_.class_of(from);
    const Route path = route(job_.cluster, program_.ranks[at(from)].chip, program_.ranks[at(to)].chip);
    const std::int64_t values = of_class.micro_batch * program_.sequence * job_.transformer.hidden;
    return path.latency_s + static_cast<double>(values * bytes_of(program_.precision)) / path.bandwidth;
  }

  const Job& job_;
  const Program& program_;
  CostTable costs_;
  ScheduleTimes times_;
};

Timetable timetable_of(const Job& job, const Program& program, const ProgramClass& first) {
  const Strategy& strategy = job.strategy;
  if (strategy.schedule == Schedule::custom) return strategy.timetable;
  const PipelineTemplate& pipeline = strategy.templates[at(first.pipeline)];
  const PipelineShape shape{static_cast<int>(pipeline.stages.size()), static_cast<int>(first.chunks.size()),
                            static_cast<int>(first.micro_batches)};
  const bool fills = strategy.schedule == Schedule::zb_h1 || strategy.schedule == Schedule::zb_h2 ||
                     strategy.schedule == Schedule::zb_v;
  return make_timetable(strategy.schedule, shape,
                        fills ? Prediction(job, program, first.pipeline).take() : ScheduleTimes{});
}

void lay_down(const std::vector<Action>& actions, ProgramClass& of_class) {
  const auto runs = [&](Pass pass, int chunk) {
    return std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
      return action.pass == pass && chunk_at(of_class, action.virtual_stage) == chunk;
    });
  };
  for (int chunk = 0; chunk < static_cast<int>(of_class.chunks.size()); ++chunk)
    if (runs(Pass::weight_gradient, chunk)) add_split_blocks(of_class, chunk, runs(Pass::backward, chunk));
  Stream& computes = of_class.streams[at(stream_of(of_class, StreamKind::compute))];
  for (const Action& action : actions)
    computes.instructions.push_back(
        compute_of(of_class, block_of(of_class, action.pass, chunk_at(of_class, action.virtual_stage)),
                   action.micro_batch));
}

}  // namespace

void schedule_computes(const Job& job, Program& program) {
  Timetable timetable;
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    if (program.classes[i].stage == 0) timetable = timetable_of(job, program, program.classes[i]);
    lay_down(timetable.ranks[at(program.classes[i].stage)], program.classes[i]);
  }
}

}  // namespace motley
