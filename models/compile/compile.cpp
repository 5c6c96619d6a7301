// The list of passes: the one page that shows how a Program is made.
#include "models/compile/compile.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/base/size.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/program/account.hpp"

namespace motley {
namespace {

// The largest program that is compiled. Published runs have up to 65,536 forwards in all their stages together (1,024
// micro-batches through 64 virtual stages); a program of half a million instructions takes up to half a GB.
constexpr std::int64_t kMostInstructions = 500'000;

// Instructions that each layer has of its own in a forward and its backward: the cut computes, gathers and reductions
// of its parameters, exchanges of its experts, tensor-parallel collectives, keys and values of other ranks.
std::int64_t instructions_of_layer(const Job& job, const PipelineTemplate& pipeline, const Stage& stage) {
  std::int64_t count = 0;
  if (pipeline.context_parallel > 1) count += 8;
  if (job.strategy.zero > 1) count += 4;
  if (stage.expert_parallel > 1) count += 8;
  if (stage.tensor_parallel > 1 && job.fidelity.tensor_parallel != CollectiveLevel::formula) count += 8;
  return count;
}

// What the passes will make, without making it.
std::int64_t estimated_instructions(const Job& job) {
  std::int64_t sum = 0;
  for (const PipelineTemplate& pipeline : job.strategy.templates)
    for (const VirtualStage& stage : virtual_stages(pipeline)) {
      const std::int64_t of_layer = instructions_of_layer(job, pipeline, pipeline.stages[at(stage.stage)]);
      const std::int64_t of_micro_batch = 2 + of_layer * (stage.layers.last - stage.layers.first);
      sum = size_sum(sum, size_product({pipeline.micro_batches, of_micro_batch}));
    }
  return sum;
}

std::int64_t layers_of(const Stage& stage) {
  std::int64_t layers = stage.last_layer - stage.first_layer;
  for (const Layers& more : stage.more) layers += more.last - more.first;
  return layers;
}

// What is counted for each layer and micro-batch takes time, too.
std::int64_t most_layer_passes(const Strategy& strategy) {
  std::int64_t most = 0;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages)
      most = std::max(most, size_product({layers_of(stage), pipeline.micro_batches}));
  return most;
}

void refuse_too_many(std::int64_t count, const char* what) {
  if (count > kMostInstructions)
    throw Refusal(Exit::infeasible, "program-too-large", {},
                  fmt::format("the program would have about {} {}, and at most {} are compiled", count, what,
                              kMostInstructions),
                  "fewer micro-batches in a step: a larger micro_batch, or a smaller global_batch");
}

// Passes over layers that are divided one by one take time that grows with the square of their number.
void refuse_too_many_divided_layers(const Strategy& strategy) {
  constexpr std::int64_t kMostDivided = 512;
  if (strategy.zero < 2) return;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages)
      if (const std::int64_t layers = layers_of(stage); layers > kMostDivided)
        throw Refusal(Exit::infeasible, "program-too-large", {},
                      fmt::format("a stage has {} layers, each divided by `zero: {}`", layers, strategy.zero),
                      fmt::format("at most {} layers in a stage: more stages, or `zero: 1`", kMostDivided));
}

// Each virtual stage has four streams, and whatever runs a rank looks at all of its streams again and again.
void refuse_too_many_chunks(const Strategy& strategy) {
  constexpr std::size_t kMostChunks = 256;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages)
      if (const std::size_t chunks = 1 + stage.more.size(); chunks > kMostChunks)
        throw Refusal(Exit::infeasible, "program-too-large", {},
                      fmt::format("a stage holds {} virtual stages", chunks),
                      fmt::format("at most {}: more stages, or fewer virtual stages", kMostChunks));
}

std::int64_t count_instructions(const Program& program) {
  std::int64_t count = 0;
  for (const RankProgram& rank_program : program.rank_programs)
    for (const Stream& stream : rank_program.streams)
      count += static_cast<std::int64_t>(stream.instructions.size());
  return count;
}

}  // namespace

bool is_too_large(const Job& job, std::int64_t micro_batches, std::int64_t context_parallel,
                  std::int64_t expert_parallel) {
  PipelineTemplate pipeline;
  pipeline.context_parallel = context_parallel;
  Stage stage;
  stage.expert_parallel = expert_parallel;
  Job plain = job;
  plain.strategy = {};
  const std::int64_t of_layer = instructions_of_layer(plain, pipeline, stage);
  return size_product({micro_batches, of_layer, job.transformer.layers}) > kMostInstructions;
}

const std::vector<CompilePass>& compile_passes() {
  static const std::vector<CompilePass> passes = {
      {"place", "which rank is which stage, replica and tensor index, on which chip; peers and groups",
       place},
      {"kernels", "tensors of each stage, kernels of its forward and backward", build_kernels},
      {"divide", "optimizer state, gradients and parameters that replicas divide among them (zero)",
       divide_state},
      {"schedule", "order of forwards and backwards of each stage", schedule_computes},
      {"transfers", "activations and their gradients between stages, on streams of their own", add_transfers},
      {"shards", "parameters gathered before, gradients reduced after each use of a layer (zero 2, 3)",
       add_shard_collectives},
      {"gradients", "reduction of gradients over replicas and tied embeddings", add_gradient_reduction},
      {"optimizer", "the optimizer step, when every gradient is complete", add_optimizer},
      {"offload", "states and activations that the node's memory keeps, and their copies (offload)",
       offload_to_hosts},
      {"separate", "tensor-parallel collectives cut out of computes, unless priced inside them",
       separate_tensor_collectives},
      {"exchanges",
       "forwards and backwards side by side, each computing while the other's tokens travel (overlap)",
       overlap_exchanges},
      {"lifetimes", "what each kernel and instruction allocates and frees", derive_lifetimes},
  };
  return passes;
}

Program place_ranks(const Job& job) {
  validate(job.transformer, job.train, job.strategy);
  Program program;
  place_stages(job, program);
  return program;
}

Program compile(const Job& job) {
  validate(job.transformer, job.train, job.strategy);
  refuse_too_many(estimated_instructions(job), "instructions");
  refuse_too_many(most_layer_passes(job.strategy), "layers of micro-batches in a stage");
  refuse_too_many_divided_layers(job.strategy);
  refuse_too_many_chunks(job.strategy);
  Program program;
  for (const CompilePass& pass : compile_passes()) {
    pass.run(job, program);
    refuse_too_many(count_instructions(program), "instructions");
  }
  for (const RankProgram& rank_program : program.rank_programs) refuse_uncountable(rank_program);
  return program;
}

}  // namespace motley
