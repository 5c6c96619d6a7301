// Pass "schedule": each stage's computes in the order of the strategy's schedule (models/schedule/schedule.hpp).
// Where a backward is split, its block is split: the kernels that only add to weight gradients become a block of
// their own, and the tensors that they read live until then. The times predicted for computes and transfers on these
// chips decide here when weight gradients run, and the Program keeps that order.
#include <algorithm>

#include "models/base/index.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/compile/predicted_order.hpp"

namespace motley {
namespace {

// Splits the chunk's backward into its input gradient and, at the end of the list of blocks, its weight gradient.
void split_backward(RankProgram& rank_program, ChunkId chunk) {
  Block& input = rank_program.blocks[block_of(rank_program, Pass::backward, chunk)];
  Block weight;
  weight.pass = Pass::weight_gradient;
  weight.chunk = chunk;
  weight.name = block_name(rank_program, weight.pass, chunk);
  std::vector<Kernel> whole = std::move(input.kernels);
  input.pass = Pass::input_gradient;
  input.name = block_name(rank_program, input.pass, chunk);
  input.kernels.clear();
  for (Kernel& kernel : whole) (only_weights(kernel) ? weight : input).kernels.push_back(std::move(kernel));
  rank_program.blocks.add(std::move(weight));
}

// Adds the blocks of a split backward. If some micro-batches have a whole backward, the chunk has all three blocks.
void add_split_blocks(RankProgram& rank_program, ChunkId chunk, bool keep_whole) {
  const BlockId id = block_of(rank_program, Pass::backward, chunk);
  const Block whole = rank_program.blocks[id];
  split_backward(rank_program, chunk);
  auto& blocks = rank_program.blocks.items();
  if (keep_whole) blocks.insert(blocks.begin() + id.value(), whole);
}

// Makes one instruction of the whole block.
Instruction compute_of(const RankProgram& rank_program, BlockId block, int micro_batch) {
  Instruction compute;
  compute.body = Compute{block, 0, static_cast<int>(rank_program.blocks[block].kernels.size())};
  compute.micro_batch = micro_batch;
  return compute;
}

bool exchanges_overlap(const Strategy& strategy, const PipelineTemplate& pipeline) {
  return strategy.overlap_experts &&
         std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [](const Stage& stage) { return stage.expert_parallel > 1; });
}

// The timetable of the template whose first stage is `first`.
Timetable timetable_for(const Job& job, const Program& program, const RankProgram& first) {
  const Strategy& strategy = job.strategy;
  if (strategy.schedule == Schedule::custom) return strategy.timetable;
  const PipelineTemplate& pipeline = strategy.templates[at(first.pipeline)];
  const PipelineShape shape{static_cast<int>(pipeline.stages.size()), static_cast<int>(first.chunks.size()),
                            static_cast<int>(first.micro_batches),
                            exchanges_overlap(strategy, pipeline) ? 1 : 0, strategy.steps_overlap()};
  if (!depends_on_times(strategy.schedule)) return make_timetable(strategy.schedule, shape);
  const ScheduleTimes times = predicted_times(program, job.cluster, first.pipeline);
  return make_timetable(strategy.schedule, shape,
                        strategy.put_off == PutOff::count ? put_off_by_count(times) : times);
}

void lay_down(const std::vector<Action>& actions, RankProgram& rank_program) {
  const auto runs = [&](Pass pass, ChunkId chunk) {
    return std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
      return action.pass == pass && chunk_at(rank_program, action.virtual_stage) == chunk;
    });
  };
  for (ChunkId chunk : rank_program.chunks.ids())
    if (runs(Pass::weight_gradient, chunk))
      add_split_blocks(rank_program, chunk, runs(Pass::backward, chunk));
  Stream& computes = rank_program.streams[stream_of(rank_program, StreamKind::compute)];
  for (const Action& action : actions) {
    const ChunkId chunk = chunk_at(rank_program, action.virtual_stage).value();
    computes.instructions.push_back(
        compute_of(rank_program, block_of(rank_program, action.pass, chunk), action.micro_batch));
  }
}

}  // namespace

void schedule_computes(const Job& job, Program& program) {
  Timetable timetable;
  for (RankProgram& rank_program : program.rank_programs) {
    if (rank_program.stage == 0) timetable = timetable_for(job, program, rank_program);
    lay_down(timetable.ranks[at(rank_program.stage)], rank_program);
  }
}

}  // namespace motley
