// Pass "schedule": each stage's computes in the order of the strategy's schedule (models/schedule.hpp). Where a
// backward is split, its kernels are: those that only add to weights' gradients become a block of their own, and
// what they read lives until then. When weight gradients run is decided here, from what computes and transfers are
// predicted to take on these chips, and stands in the Program from then on.
#include <algorithm>

#include "models/compile_passes.hpp"
#include "models/schedule_program.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

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

bool exchanges_overlap(const Strategy& strategy, const PipelineTemplate& pipeline) {
  return strategy.overlap_experts &&
         std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [](const Stage& stage) { return stage.expert_parallel > 1; });
}

Timetable make_timetable_of(const Job& job, const Program& program, const ProgramClass& first) {
  const Strategy& strategy = job.strategy;
  if (strategy.schedule == Schedule::custom) return strategy.timetable;
  const PipelineTemplate& pipeline = strategy.templates[at(first.pipeline)];
  const PipelineShape shape{static_cast<int>(pipeline.stages.size()), static_cast<int>(first.chunks.size()),
                            static_cast<int>(first.micro_batches),
                            exchanges_overlap(strategy, pipeline) ? 1 : 0};
  return make_timetable(strategy.schedule, shape,
                        depends_on_times(strategy.schedule)
                            ? predicted_times(program, job.cluster, first.pipeline)
                            : ScheduleTimes{});
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
    if (program.classes[i].stage == 0) timetable = make_timetable_of(job, program, program.classes[i]);
    lay_down(timetable.ranks[at(program.classes[i].stage)], program.classes[i]);
  }
}

}  // namespace motley
