// Expansion and validation of strategies; their text form is in strategy_text.cpp.
#include "models/strategy.hpp"

#include <fmt/format.h>

#include "models/refusal.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse(const std::string& kind, const std::string& message, const std::string& hint) {
  throw Refusal(Exit::infeasible, kind, {}, message, hint);
}

std::string divisors(std::int64_t number) {
  std::string list;
  for (std::int64_t d = 1; d <= number && d <= 64; ++d)
    if (number % d == 0) list += (list.empty() ? "" : ", ") + std::to_string(d);
  return list;
}

void check_tensor_degree(const Transformer& transformer, std::int64_t tp) {
  if (tp < 1) refuse("impossible-degree", fmt::format("tensor_parallel is {}", tp), "at least 1");
  struct Cuts {
    const char* what;
    std::int64_t count;
  };
  for (const Cuts& cuts : {Cuts{"heads", transformer.heads}, Cuts{"kv_heads", transformer.kv_heads},
                           Cuts{"ffn", transformer.ffn}})
    if (cuts.count % tp != 0)
      refuse("impossible-degree",
             fmt::format("tensor_parallel {} does not divide the {} {} of `{}`", tp, cuts.count, cuts.what,
                         transformer.name),
             fmt::format("divisors of {}: {}", cuts.count, divisors(cuts.count)));
}

void check_stages(const Transformer& transformer, const PipelineTemplate& pipeline) {
  std::int64_t next = 0;
  for (const Stage& stage : pipeline.stages) {
    if (stage.first_layer != next || stage.last_layer <= stage.first_layer)
      refuse("impossible-stages",
             fmt::format("a stage holds layers {} to {}; the one before ends at {}", stage.first_layer,
                         stage.last_layer - 1, next - 1),
             "stages hold consecutive layers, at least one each");
    if (stage.tensor_parallel != pipeline.stages.front().tensor_parallel)
      refuse("unequal-tensor-parallel",
             "stages of unlike tensor_parallel need resharding, which this version does not do",
             "give every stage the same tensor_parallel");
    next = stage.last_layer;
  }
  if (next != transformer.layers)
    refuse("impossible-stages",
           fmt::format("the stages hold {} layers, `{}` has {}", next, transformer.name, transformer.layers),
           "");
}

}  // namespace

Strategy expand(const Transformer& transformer, const Train& train, std::int64_t tp, std::int64_t pp,
                std::int64_t dp) {
  if (pp < 1 || dp < 1)
    refuse("impossible-degree", fmt::format("pipeline_parallel {}, data_parallel {}", pp, dp),
           "at least 1 each");
  if (pp > transformer.layers)
    refuse("impossible-degree",
           fmt::format("pipeline_parallel {} is more than the {} layers of `{}`", pp, transformer.layers,
                       transformer.name),
           fmt::format("at most {}", transformer.layers));
  check_tensor_degree(transformer, tp);
  if (train.micro_batch < 1 || train.global_batch < 1 || train.global_batch % (dp * train.micro_batch) != 0)
    refuse(
        "impossible-batch",
        fmt::format("global_batch {} is not a multiple of data_parallel {} x micro_batch {}",
                    train.global_batch, dp, train.micro_batch),
        fmt::format("nearest: {}", std::max<std::int64_t>(1, train.global_batch / (dp * train.micro_batch)) *
                                       dp * train.micro_batch));
  PipelineTemplate pipeline;
  pipeline.replicas = dp;
  pipeline.micro_batches = train.global_batch / (dp * train.micro_batch);
  std::int64_t first = 0;
  for (std::int64_t stage = 0; stage < pp; ++stage) {
    const std::int64_t layers = transformer.layers / pp + (stage < transformer.layers % pp ? 1 : 0);
    pipeline.stages.push_back({first, first + layers, tp});
    first += layers;
  }
  Strategy strategy;
  strategy.templates = {pipeline};
  return strategy;
}

void validate(const Transformer& transformer, const Train& train, const Strategy& strategy) {
  if (strategy.templates.size() != 1)
    refuse("many-templates",
           fmt::format("{} templates: this version runs exactly one", strategy.templates.size()),
           "keep one template and raise its replicas");
  const PipelineTemplate& pipeline = strategy.templates[0];
  if (pipeline.stages.empty() || pipeline.replicas < 1 || pipeline.micro_batches < 1)
    refuse("impossible-stages", "a template wants at least one stage, one replica and one micro-batch", "");
  check_tensor_degree(transformer, pipeline.stages[0].tensor_parallel);
  check_stages(transformer, pipeline);
  if (pipeline.replicas * pipeline.micro_batches * train.micro_batch != train.global_batch)
    refuse("impossible-batch",
           fmt::format("{} replicas x {} micro_batches x micro_batch {} is not the global_batch {}",
                       pipeline.replicas, pipeline.micro_batches, train.micro_batch, train.global_batch),
           "");
  if (strategy.p2p_buffers < 1)
    refuse("impossible-buffers", fmt::format("p2p_buffers is {}", strategy.p2p_buffers), "at least 1");
  if (train.sequence < 1 || (transformer.max_positions > 0 && train.sequence > transformer.max_positions &&
                             transformer.learned_positions()))
    refuse("impossible-sequence",
           fmt::format("sequence {} is longer than the {} positions of `{}`", train.sequence,
                       transformer.max_positions, transformer.name),
           fmt::format("at most {}", transformer.max_positions));
}

}  // namespace motley
