// A strategy in Megatron-LM's arguments.
#include <fmt/format.h>

#include <cmath>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/frameworks/megatron_settings.hpp"

namespace motley {
namespace {

constexpr const char* kPlain =
    "overlaps no transfer under plain 1F1B: it turns --overlap-p2p-communication off";

std::string layers_text(std::int64_t count) {
  return count == 0 ? "" : count == 1 ? "t" : fmt::format("t*{}", count);
}

// Refuses stages that differ where Megatron-LM has one number for all.
void refuse_unlike_stages(const PipelineTemplate& pipeline, const Wording& wording) {
  const Stage& first = pipeline.stages.at(0);
  for (std::size_t i = 1; i < pipeline.stages.size(); ++i) {
    const Stage& stage = pipeline.stages[i];
    const auto refuse_unlike = [&](const char* key, std::int64_t here, std::int64_t there) {
      wording.refuse(key, "",
                     fmt::format("has one for all stages: stage 0 has {}, stage {} has {}", there, i, here));
    };
    if (stage.tensor_parallel != first.tensor_parallel)
      refuse_unlike("strategy.tensor_parallel", stage.tensor_parallel, first.tensor_parallel);
    if (stage.expert_parallel != first.expert_parallel)
      refuse_unlike("strategy.expert_parallel", stage.expert_parallel, first.expert_parallel);
    if (stage.expert_cut() != first.expert_cut())
      refuse_unlike("strategy.expert_tensor_parallel", stage.expert_cut(), first.expert_cut());
    if (pipeline.replicas_of(stage) != pipeline.replicas_of(first))
      refuse_unlike("strategy.replicas", pipeline.replicas_of(stage), pipeline.replicas_of(first));
  }
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i)
    if (has_stage_before(pipeline, static_cast<int>(i)) &&
        pipeline.stages[i].resharding == Resharding::gather)
      wording.refuse("strategy.resharding", "gather", "sends whole tensors, or rows with sequence_parallel");
  if (pipeline.replicas_of(first) != pipeline.replicas)
    wording.refuse("strategy.replicas", "", "has one number of replicas, by which batches are counted too");
}

const char* module_name(Module module) {
  switch (module) {
    case Module::norms:
      return "layernorm";
    case Module::latent:
      return "mla_up_proj";
    case Module::attention:
      return "core_attn";
    case Module::activation:
      return "moe_act";
    default:
      return nullptr;
  }
}

void add_overlaps(const Job& job, const Wording& wording, Settings& settings) {
  const Strategy& s = job.strategy;
  if (s.overlap_gradients) settings.push_back({"overlap-grad-reduce"});
  if (s.overlap_parameters) {
    if (s.zero == 0)
      wording.refuse("strategy.overlap.parameters", "true",
                     "gathers early what the distributed optimizer divides", "zero: 1");
    if (!s.overlap_gradients)
      wording.refuse("strategy.overlap.parameters", "true", "gathers early only where gradients overlap, too",
                     "overlap: {gradients: true}");
    settings.push_back({"overlap-param-gather"});
  }
  if (s.overlap_gradients || offloads_optimizer(s)) {
    const std::int64_t width = bytes_of(job.train.gradients);
    if (s.bucket_bytes % width != 0)
      wording.refuse("strategy.overlap.bucket_bytes", std::to_string(s.bucket_bytes),
                     fmt::format("counts a bucket in elements, of {} bytes here", width));
    settings.push_back({"ddp-bucket-size", {std::to_string(s.bucket_bytes / width)}});
  }
  if (s.overlap_steps.value_or(false))
    wording.refuse("strategy.overlap.steps", "true",
                   "clips gradients by the norm of all, so ranks end a step together",
                   "overlap: {steps: false}");
}

void add_sharding(const Job& job, const Wording& wording, Settings& settings) {
  const Strategy& s = job.strategy;
  const PipelineTemplate& pipeline = s.templates.at(0);
  if (s.zero >= 2)
    wording.refuse("strategy.zero", std::to_string(s.zero),
                   "divides gradients and parameters with Megatron-FSDP, which is not exported", "zero: 1");
  if (s.zero == 1) settings.push_back({"use-distributed-optimizer"});
  if (s.shard_over > 0 && (s.shard_over < pipeline.replicas || pipeline.context_parallel > 1)) {
    if (pipeline.context_parallel > 1)
      wording.refuse("strategy.shard_over", std::to_string(s.shard_over),
                     "divides over ranks that cut sequences first, so that its instances are others");
    MOTLEY_CHECK(pipeline.replicas % s.shard_over == 0);  // else the strategy is refused
    settings.push_back(
        {"num-distributed-optimizer-instances", {std::to_string(pipeline.replicas / s.shard_over)}});
  }
}

}  // namespace

const PipelineTemplate& only_template(const Strategy& strategy, const Wording& wording) {
  if (strategy.templates.size() > 1) {
    for (const PipelineTemplate& pipeline : strategy.templates)
      if (pipeline.context_parallel != strategy.templates[0].context_parallel)
        wording.refuse("strategy.context_parallel", "", "cuts sequences alike in all pipelines");
    wording.refuse(
        "strategy.templates", "", "has one form of pipeline for all replicas",
        fmt::format("the strategy has {} templates; one of them can be said", strategy.templates.size()));
  }
  return strategy.templates.at(0);
}

bool offloads_optimizer(const Strategy& strategy) {
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages)
      if (stage.offload.value_or(strategy.offload).optimizer > 0) return true;
  return false;
}

StageRecompute recompute_of(const Strategy& strategy, const Stage& stage) {
  return {stage.recompute.value_or(strategy.recompute), stage.recompute_layers};
}

Settings megatron_recompute(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  Settings settings;
  const StageRecompute first = recompute_of(job.strategy, pipeline.stages.at(0));
  for (const Stage& stage : pipeline.stages)
    if (recompute_of(job.strategy, stage) != first)
      wording.refuse("strategy.recompute", "", "recomputes the same in every stage");
  if (first.what == Recompute::none) return settings;
  if (first.what.layer && first.what.modules == 0) {
    settings.push_back({"recompute-granularity", {"full"}});
    settings.push_back({"recompute-method", {first.layers ? "block" : "uniform"}});
    settings.push_back({"recompute-num-layers", {std::to_string(first.layers.value_or(1))}});
    return settings;
  }
  if (first.layers)
    wording.refuse("strategy.recompute_layers", std::to_string(*first.layers),
                   "recomputes whole layers only where it recomputes some of the layers", "recompute: full");
  Setting modules{"recompute-modules"};
  for (const Module module : every<Module>()) {
    if (!first.what.has(module)) continue;
    const char* const name = module_name(module);
    if (name == nullptr)
      wording.refuse("strategy.recompute", name_of(module), "has no such module to recompute",
                     "it has norms, latent, attention and activation");
    if (module == Module::activation && job.transformer.experts.count == 0)
      wording.refuse("strategy.recompute", name_of(module), "recomputes the activation of experts only");
    modules.values.emplace_back(name);
  }
  settings.push_back({"recompute-granularity", {"selective"}});
  settings.push_back(std::move(modules));
  return settings;
}

void refuse_other_schedules(const Strategy& strategy, const PipelineTemplate& pipeline, bool interleaves,
                            const Wording& wording) {
  const std::string_view name = name_of(strategy.schedule);
  switch (strategy.schedule) {
    case Schedule::one_f_one_b:
      break;
    case Schedule::interleaved:
      if (interleaves) break;
      wording.refuse("strategy.schedule", name, "has no virtual stages where its meshes may differ",
                     "schedule: 1f1b");
    case Schedule::zb_h1:
    case Schedule::zb_h2:
    case Schedule::zb_v:
      wording.refuse("strategy.schedule", name, "has no zero-bubble schedule",
                     "schedule: 1f1b or interleaved");
    default:
      wording.refuse("strategy.schedule", name, "has no such schedule", "schedule: 1f1b or interleaved");
  }
  if (strategy.schedule == Schedule::one_f_one_b && pipeline.stages.size() > 1 && strategy.overlap_p2p)
    wording.refuse("strategy.overlap.p2p", "true", kPlain, "overlap: {p2p: false}");
  if (strategy.p2p_buffers != Strategy{}.p2p_buffers)
    wording.refuse("strategy.p2p_buffers", std::to_string(strategy.p2p_buffers), "has no argument for it");
}

std::string megatron_layout(const Transformer& transformer, const PipelineTemplate& pipeline) {
  std::string layout;
  const std::vector<VirtualStage> stages = virtual_stages(pipeline);
  for (std::size_t v = 0; v < stages.size(); ++v) {
    if (v > 0) layout += "|";
    if (v == 0) layout += "E";
    layout += layers_text(stages[v].layers.last - stages[v].layers.first);
    if (v + 1 == stages.size()) layout += std::string(at(transformer.trained_extra()), 'm') + "L";
  }
  return layout;
}

Settings megatron_options(const Job& job, const Wording& wording) {
  const Strategy& s = job.strategy;
  const PipelineTemplate& pipeline = only_template(s, wording);
  Settings settings;
  add_sharding(job, wording, settings);
  add_overlaps(job, wording, settings);
  for (const Stage& stage : pipeline.stages) {
    const Offload offload = stage.offload.value_or(s.offload);
    if (offload.activations > 0)
      wording.refuse("strategy.offload.activations", format_exact(offload.activations),
                     "offloads activations by the names of modules, not by a share of the layers");
    if (offload != pipeline.stages[0].offload.value_or(s.offload))
      wording.refuse("strategy.offload", "", "offloads the same share in every stage");
  }
  const Offload offload = pipeline.stages.at(0).offload.value_or(s.offload);
  if (offload.optimizer > 0) {
    if (s.zero == 0)
      wording.refuse("strategy.offload.optimizer", format_exact(offload.optimizer),
                     "offloads the distributed optimizer only", "zero: 1");
    settings.push_back({"use-precision-aware-optimizer"});  // offloading goes through it
    settings.push_back({"optimizer-cpu-offload"});
    settings.push_back({"optimizer-offload-fraction", {format_exact(offload.optimizer)}});
  }
  if (job.transformer.experts.count > 0 && s.expert_weights == ExpertWeights::combine)
    wording.refuse("strategy.expert_weights", "combine", "multiplies the router's weights inside each expert",
                   "expert_weights: activation");
  return settings;
}

Settings megatron_strategy(const Job& job, const Wording& wording) {
  const Strategy& s = job.strategy;
  const PipelineTemplate& pipeline = only_template(s, wording);
  refuse_unlike_stages(pipeline, wording);
  refuse_other_schedules(s, pipeline, true, wording);
  const Stage& stage = pipeline.stages.at(0);
  const std::size_t pp = pipeline.stages.size();
  const bool interleaved = s.schedule == Schedule::interleaved;
  if (interleaved && pp == 1)
    wording.refuse("strategy.schedule", "interleaved", "interleaves pipelines of two stages or more");
  Settings settings;
  settings.push_back({"tensor-model-parallel-size", {std::to_string(stage.tensor_parallel)}});
  settings.push_back({"pipeline-model-parallel-size", {std::to_string(pp)}});
  if (pp > 1)
    settings.push_back({"pipeline-model-parallel-layout", {megatron_layout(job.transformer, pipeline)}});
  MOTLEY_CHECK(!interleaved || s.overlap_p2p);  // else the strategy is refused
  if (pipeline.context_parallel > 1) {
    settings.push_back({"context-parallel-size", {std::to_string(pipeline.context_parallel)}});
    settings.push_back({"cp-comm-type", {s.passes_context_in_ring() ? "p2p" : "allgather"}});
  }
  if (stage.expert_parallel > 1)
    settings.push_back({"expert-model-parallel-size", {std::to_string(stage.expert_parallel)}});
  if (stage.expert_cut() != stage.tensor_parallel)
    settings.push_back({"expert-tensor-parallel-size", {std::to_string(stage.expert_cut())}});
  if (s.sequence_parallel && stage.tensor_parallel > 1) settings.push_back({"sequence-parallel"});
  if (job.transformer.experts.count > 0 && stage.tensor_parallel > 1 && !s.sequence_parallel)
    wording.refuse("strategy.sequence_parallel", "false",
                   "trains experts under tensor parallelism with sequence parallelism only",
                   "sequence_parallel: true");
  for (Setting& setting : megatron_recompute(job, pipeline, wording)) settings.push_back(std::move(setting));
  if (s.overlap_experts) {
    if (stage.expert_parallel == 1)
      wording.refuse("strategy.overlap.experts", "true",
                     "overlaps what experts send only where they are divided");
    if (recompute_of(s, stage).what.layer)
      wording.refuse("strategy.overlap.experts", "true",
                     "does not overlap experts and recompute whole layers");
    if (job.train.precision == Format::fp32)
      wording.refuse("strategy.overlap.experts", "true", "overlaps experts in bf16 and fp16 only");
    if (job.transformer.trained_extra() > 1)
      wording.refuse("strategy.overlap.experts", "true",
                     "overlaps experts with one module for further tokens at most");
    settings.push_back({"overlap-moe-expert-parallel-comm"});
  }
  for (Setting& option : megatron_options(job, wording)) settings.push_back(std::move(option));
  return settings;
}

}  // namespace motley
