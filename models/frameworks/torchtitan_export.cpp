// A configuration of torchtitan: a Python function that returns its Trainer.Config. TOML is gone there, and the flags
// of its command line are frozen (torchtitan/config/README.md). Facts: torchtitan/config/configs.py,
// distributed/pipeline_parallel.py, distributed/activation_checkpoint.py, torchtitan/models/llama3/__init__.py and
// torchtitan/models/qwen3/__init__.py of the version in framework.cpp.
#include <fmt/format.h>

#include <array>
#include <cctype>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/predicted_order.hpp"
#include "models/frameworks/export.hpp"
#include "models/frameworks/megatron_settings.hpp"

namespace motley {
namespace {

// A shape that torchtitan ships, under the name of its module and flavor.
struct Flavor {
  const char *module, *flavor;
  std::int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocabulary;
  bool tied, qk_norm;
  double rope_theta;
};
constexpr std::array kFlavors = {
    Flavor{"llama3", "1B", 2048, 16, 32, 8, 64, 8192, 128256, true, false, 500000},
    Flavor{"llama3", "3B", 3072, 28, 24, 8, 128, 8192, 128256, true, false, 500000},
    Flavor{"llama3", "8B", 4096, 32, 32, 8, 128, 14336, 128256, false, false, 500000},
    Flavor{"llama3", "70B", 8192, 80, 64, 8, 128, 28672, 128256, false, false, 500000},
    Flavor{"llama3", "405B", 16384, 126, 128, 8, 128, 53248, 128256, false, false, 500000},
    Flavor{"qwen3", "0.6B", 1024, 28, 16, 8, 128, 3072, 151936, true, true, 1000000},
    Flavor{"qwen3", "1.7B", 2048, 28, 16, 8, 128, 6144, 151936, true, true, 1000000},
    Flavor{"qwen3", "4B", 2560, 36, 32, 8, 128, 9728, 151936, true, true, 1000000},
    Flavor{"qwen3", "8B", 4096, 36, 32, 8, 128, 12288, 151936, false, true, 1000000},
    Flavor{"qwen3", "14B", 5120, 40, 40, 8, 128, 17408, 151936, false, true, 1000000},
    Flavor{"qwen3", "32B", 5120, 64, 64, 8, 128, 25600, 151936, false, true, 1000000},
};

const Flavor& flavor_of(const Transformer& t, const Wording& wording) {
  const bool plain = t.family == Family::llama && !t.qkv_bias && !t.output_bias && !t.ffn_bias &&
                     t.sliding_window == 0 && !t.latent.used() && t.experts.count == 0 &&
                     t.trained_extra() == 0 && !t.lora.used() && variant_of(t).key.empty();
  for (const Flavor& f : kFlavors)
    if (plain && f.hidden == t.hidden && f.layers == t.layers && f.heads == t.heads &&
        f.kv_heads == t.kv_heads && f.head_dim == t.head_dim && f.ffn == t.ffn &&
        f.vocabulary == t.vocabulary && f.tied == t.tied_embeddings && f.qk_norm == t.qk_norm &&
        f.rope_theta == t.rope_theta)
      return f;
  wording.refuse("model", t.name, "ships no flavor of this shape that is exported",
                 "the dense Llama 3 (1B, 3B, 8B, 70B, 405B) and Qwen3 (0.6B to 32B) are");
}

void refuse_degrees(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  const Strategy& s = job.strategy;
  const Stage& first = pipeline.stages.at(0);
  for (const Stage& stage : pipeline.stages) {
    if (stage.tensor_parallel != first.tensor_parallel)
      wording.refuse("strategy.tensor_parallel", std::to_string(stage.tensor_parallel),
                     fmt::format("has one degree for all stages, the first has {}", first.tensor_parallel));
    if (pipeline.replicas_of(stage) != pipeline.replicas)
      wording.refuse("strategy.replicas", "", "has one number of replicas for all stages");
    if (stage.resharding == Resharding::gather)
      wording.refuse("strategy.resharding", "gather", "sends whole tensors, or rows with sequence_parallel");
    const Offload offload = stage.offload.value_or(s.offload);
    if (offload.optimizer > 0 || offload.activations > 0)
      wording.refuse("strategy.offload", "", "offloads parameters with the optimizer, or nothing");
    if (recompute_of(s, stage) != recompute_of(s, first))
      wording.refuse("strategy.recompute", "", "checkpoints activations alike in every stage");
  }
  const StageRecompute recompute = recompute_of(s, first);
  if (recompute.layers)
    wording.refuse("strategy.recompute_layers", std::to_string(*recompute.layers),
                   "checkpoints every layer or none");
  if (recompute.what != Recompute::none && recompute.what != Recompute::full &&
      recompute.what != Recompute::alternate)
    wording.refuse("strategy.recompute", text_of(recompute.what),
                   "checkpoints layers (full) or operations (alternate)",
                   "recompute: full, alternate or none");
}

void refuse_sharding(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  const Strategy& s = job.strategy;
  const bool pipelines = pipeline.stages.size() > 1;
  if (s.zero == 1 || s.zero == 2)
    wording.refuse("strategy.zero", std::to_string(s.zero), "divides parameters too (FSDP), or nothing (DDP)",
                   "zero: 3 or 0");
  if (s.zero == 0 && pipeline.context_parallel > 1)
    wording.refuse("strategy.zero", "0", "divides parameters over the ranks that cut a sequence", "zero: 3");
  if (s.shard_over > 0 && pipeline.context_parallel > 1)
    wording.refuse("strategy.shard_over", std::to_string(s.shard_over),
                   "divides over whole replicas, with all ranks that cut their sequences");
  const ReduceGradients reduces = pipelines ? ReduceGradients::last : ReduceGradients::each;
  if (s.zero == 3 && s.reduce_gradients != reduces)
    wording.refuse(
        "strategy.reduce_gradients", name_of(s.reduce_gradients),
        pipelines ? "reduces once a step in a pipeline" : "reduces after each micro-batch without a pipeline",
        fmt::format("reduce_gradients: {}", name_of(reduces)));
  if (s.prefetch != Strategy{}.prefetch)
    wording.refuse("strategy.prefetch", std::to_string(s.prefetch), "gathers one layer ahead");
  if (!s.overlap_gradients && pipeline.copies() > 1)
    wording.refuse("strategy.overlap.gradients", "false", "reduces gradients while the backward runs",
                   "overlap: {gradients: true}");
  if (s.overlap_parameters)
    wording.refuse("strategy.overlap.parameters", "true", "gathers parameters before each use");
  if (s.overlap_steps.value_or(false))
    wording.refuse("strategy.overlap.steps", "true",
                   "clips gradients by the norm of all, so ranks end a step together");
  if (s.p2p_buffers != Strategy{}.p2p_buffers)
    wording.refuse("strategy.p2p_buffers", std::to_string(s.p2p_buffers), "has no setting for it");
  const Train& train = job.train;
  if (train.matmuls)
    wording.refuse("train.matmuls", name_of(*train.matmuls),
                   "converts the model for it, which is not exported");
  if (train.precision != Format::bf16 && train.precision != Format::fp32)
    wording.refuse("train.precision", name_of(train.precision), "trains in bfloat16 or float32");
  if (train.gradients != Format::fp32)
    wording.refuse("train.gradients", name_of(train.gradients), "reduces in float32", "gradients: fp32");
}

struct TitanSchedule {
  std::string name;
  bool by_csv = false;
};

// Schedules that PyTorch makes by name; the others are given as CSV, whose stages lie in a loop or in a V.
TitanSchedule schedule_of(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  switch (job.strategy.schedule) {
    case Schedule::one_f_one_b:
      return {"1F1B"};
    case Schedule::gpipe:
      return {"GPipe"};
    case Schedule::interleaved:
      return {"Interleaved1F1B"};
    case Schedule::zb_v:
      return {"ZBVZeroBubble", true};
    case Schedule::dualpipe_v:
      return {"DualPipeV", true};
    default:
      break;
  }
  bool loop = true, v = true;
  const std::vector<VirtualStage> stages = virtual_stages(pipeline);
  const auto pp = static_cast<int>(pipeline.stages.size());
  for (int i = 0; i < static_cast<int>(stages.size()); ++i) {
    loop = loop && stages[at(i)].stage == i % pp;
    v = v && stages[at(i)].stage == (i < pp ? i : 2 * pp - 1 - i);
  }
  if (!loop && !v)
    wording.refuse("strategy.schedule", name_of(job.strategy.schedule),
                   "places virtual stages in a loop or in a V");
  return {loop ? "PipelineScheduleMulti" : "ZBVZeroBubble", true};
}

std::string module_lists(const PipelineTemplate& pipeline) {
  const std::vector<VirtualStage> stages = virtual_stages(pipeline);
  std::string text = "[\n";
  for (std::size_t v = 0; v < stages.size(); ++v) {
    std::string names = v == 0 ? "\"tok_embeddings\"" : "";
    for (std::int64_t layer = stages[v].layers.first; layer < stages[v].layers.last; ++layer)
      names += fmt::format("{}\"layers.{}\"", names.empty() ? "" : ", ", layer);
    if (v + 1 == stages.size()) names += fmt::format("{}\"norm\", \"lm_head\"", names.empty() ? "" : ", ");
    text += fmt::format("                [{}],\n", names);
  }
  return text + "            ]";
}

std::string parallelism(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  const Strategy& s = job.strategy;
  const std::int64_t shard = s.zero == 0 ? 1 : s.shard_over > 0 ? s.shard_over : pipeline.replicas;
  std::string text = fmt::format(
      "            data_parallel_replicate_degree={},\n            data_parallel_shard_degree={},\n",
      pipeline.replicas / shard, shard);
  if (s.zero == 3)
    text += fmt::format("            fsdp_reshard_after_forward=\"{}\",\n",
                        s.reshard_after_forward ? "always" : "never");
  text += fmt::format("            tensor_parallel_degree={},\n            enable_sequence_parallel={},\n",
                      pipeline.stages[0].tensor_parallel, s.sequence_parallel ? "True" : "False");
  text += fmt::format("            context_parallel_degree={},\n            pipeline_parallel_degree={},\n",
                      pipeline.context_parallel, pipeline.stages.size());
  if (pipeline.stages.size() == 1) return text;
  const TitanSchedule schedule = schedule_of(job, pipeline, wording);
  text += fmt::format("            pipeline_parallel_schedule=\"{}\",\n", schedule.name);
  if (schedule.by_csv)
    text += "            pipeline_parallel_schedule_csv=str(Path(__file__).with_name(\"schedule.csv\")),\n";
  text += fmt::format("            num_pp_microbatches={},\n", pipeline.micro_batches);
  return text + fmt::format("            module_fqns_per_model_part={},\n", module_lists(pipeline));
}

std::string function_name(const std::string& scenario) {
  std::string name;
  for (const char c : scenario) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "run_" + name : name;
}

std::string checkpointing(const Recompute& recompute) {
  return recompute == Recompute::none   ? "None"
         : recompute == Recompute::full ? "FullAC.Config()"
                                        : "SelectiveAC.Config()";
}

}  // namespace

std::vector<ExportedFile> torchtitan_files(const std::string& name, const Job& job, const Wording& wording) {
  const PipelineTemplate& pipeline = only_template(job.strategy, wording);
  const Flavor& flavor = flavor_of(job.transformer, wording);
  refuse_degrees(job, pipeline, wording);
  refuse_sharding(job, pipeline, wording);
  const Train& train = job.train;
  if (pipeline.stages.size() == 1 && job.strategy.schedule != Schedule::one_f_one_b)
    wording.refuse("strategy.schedule", name_of(job.strategy.schedule),
                   "has schedules for pipelines of two stages or more");
  const std::string body = parallelism(job, pipeline, wording);
  const bool by_csv = body.find("schedule_csv") != std::string::npos;
  const std::int64_t micro_batch = pipeline_micro_batch(job, pipeline);
  std::string text = export_header(ExportTarget::torchtitan, name, job);
  text += fmt::format("# Ranks: {}. Run it with MODULE={} CONFIG={} and NGPU ranks on each host.\n",
                      job.strategy.rank_count(), "torchtitan_run", function_name(name));
  if (by_csv) text += "from pathlib import Path\n\n";
  text +=
      "from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader\n"
      "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss\n"
      "from torchtitan.components.optimizer import default_adamw\n"
      "from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig\n"
      "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC\n"
      "from torchtitan.hf_datasets.text_datasets import DATASETS\n"
      "from torchtitan.models.common.config_utils import decoder_vocab_size\n";
  text += fmt::format(
      "from torchtitan.models.{} import model_registry\nfrom torchtitan.trainer import Trainer\n\n\n",
      flavor.module);
  text += fmt::format(
      "def {}() -> Trainer.Config:\n    model_spec = model_registry(\"{}\")\n    return Trainer.Config(\n",
      function_name(name), flavor.flavor);
  text +=
      "        model_spec=model_spec,\n        loss=ChunkedLossWrapper.Config(\n"
      "            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),\n      "
      "  ),\n"
      "        dataloader=GrainDataLoader.Config(\n"
      "            dataset=ConcatThenSplitPackingConfig(dataset=DATASETS[\"c4\"]),\n        ),\n";
  text += fmt::format("        optimizer=default_adamw(lr={}, betas=({}, {}), eps={}, weight_decay={}),\n",
                      format_exact(train.learning_rate), format_exact(train.beta1), format_exact(train.beta2),
                      format_exact(train.epsilon), format_exact(train.weight_decay));
  text += fmt::format(
      "        training=TrainingConfig(\n            num_tokens_per_microbatch_per_dp_rank={} * {},\n"
      "            num_tokens_per_train_step={} * {},\n            max_context_length={},\n            "
      "steps={},\n",
      micro_batch, train.sequence, train.global_batch, train.sequence, train.sequence, train.steps);
  text += fmt::format("            mixed_precision_param=\"{}\",\n        ),\n",
                      train.precision == Format::bf16 ? "bfloat16" : "float32");
  text += "        parallelism=ParallelismConfig(\n" + body + "        ),\n";
  text += fmt::format("        activation_checkpoint={},\n        debug=DebugConfig(seed={}),\n    )\n",
                      checkpointing(recompute_of(job.strategy, pipeline.stages[0]).what), train.seed);
  std::vector<ExportedFile> files = {{"torchtitan_run.py", text}};
  if (by_csv) files.push_back({"schedule.csv", to_csv(timetable_of(compile(job), 0))});
  return files;
}

}  // namespace motley
