// DeepSpeed's JSON. It says batch, precision, ZeRO and AutoTP; the model, its pipeline and what it recomputes are in
// the training script. Facts: deepspeed/runtime/config.py, zero/config.py, zero/offload_config.py and
// docs/_pages/config-json.md of the version in framework.cpp.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/units.hpp"
#include "models/frameworks/export.hpp"
#include "models/frameworks/megatron_settings.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

void refuse_in_script(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  const Strategy& s = job.strategy;
  const Stage& stage = pipeline.stages.at(0);
  const auto in_script = [&](bool asked, const char* key, const std::string& value, const char* hint = "") {
    if (asked) wording.refuse(key, value, "has no key for it: the training script decides it", hint);
  };
  in_script(pipeline.stages.size() > 1, "strategy.pipeline_parallel", std::to_string(pipeline.stages.size()),
            "pipeline_parallel: 1");
  if (s.schedule != Schedule::one_f_one_b)
    wording.refuse("strategy.schedule", name_of(s.schedule), "runs each micro-batch forward, then backward",
                   "schedule: 1f1b");
  in_script(pipeline.context_parallel > 1, "strategy.context_parallel",
            std::to_string(pipeline.context_parallel));
  in_script(stage.expert_parallel > 1, "strategy.expert_parallel", std::to_string(stage.expert_parallel));
  in_script(recompute_of(s, stage).what != Recompute::none, "strategy.recompute",
            text_of(recompute_of(s, stage).what), "recompute: none");
  in_script(job.transformer.lora.used(), "train.lora", "");
  if (s.sequence_parallel && stage.tensor_parallel > 1)
    wording.refuse("strategy.sequence_parallel", "true", "divides no rows under AutoTP",
                   "sequence_parallel: false");
  if (stage.expert_cut() != stage.tensor_parallel)
    wording.refuse("strategy.expert_tensor_parallel", std::to_string(stage.expert_cut()),
                   "cuts experts as the rest");
  if (job.train.matmuls)
    wording.refuse("train.matmuls", name_of(*job.train.matmuls),
                   "multiplies in the precision of the weights");
  if (job.train.precision == Format::tf32) wording.refuse("train.precision", "tf32", "has no key for it");
  if (pipeline.replicas_of(stage) != pipeline.replicas)
    wording.refuse("strategy.replicas", "", "has one number of replicas, by which batches are counted too");
}

void refuse_in_zero(const Strategy& s, const PipelineTemplate& pipeline, const Wording& wording) {
  const Offload offload = pipeline.stages.at(0).offload.value_or(s.offload);
  if (s.overlap_parameters)
    wording.refuse("strategy.overlap.parameters", "true", "gathers renewed parameters at the end of a step");
  if (s.overlap_gradients && s.zero == 0)
    wording.refuse("strategy.overlap.gradients", "true", "reduces after the backward where ZeRO is off",
                   "zero: 1");
  if (s.zero >= 2 && s.reduce_gradients == ReduceGradients::last)
    wording.refuse("strategy.reduce_gradients", "last", "reduces after each micro-batch",
                   "reduce_gradients: each");
  if (s.prefetch != Strategy{}.prefetch)
    wording.refuse("strategy.prefetch", std::to_string(s.prefetch), "gathers ahead by a number of elements");
  if (!s.reshard_after_forward)
    wording.refuse("strategy.reshard_after_forward", "false",
                   "frees parameters by how soon they are used again");
  if (s.shard_over > 0 && s.shard_over < pipeline.replicas && s.zero < 3)
    wording.refuse("strategy.shard_over", std::to_string(s.shard_over),
                   "divides over all replicas below ZeRO-3 (MiCS)");
  if (s.overlap_steps.value_or(false))
    wording.refuse("strategy.overlap.steps", "true", "ends a step on all ranks together");
  if (s.p2p_buffers != Strategy{}.p2p_buffers)
    wording.refuse("strategy.p2p_buffers", std::to_string(s.p2p_buffers), "has no key for it");
  if (offload.activations > 0)
    wording.refuse("strategy.offload.activations", format_exact(offload.activations),
                   "offloads activations where the training script checkpoints them");
  if (offload.optimizer > 0 && s.zero == 0)
    wording.refuse("strategy.offload.optimizer", format_exact(offload.optimizer),
                   "offloads the optimizer under ZeRO only", "zero: 1");
  if (offload.optimizer > 0 && offload.optimizer < 1 && s.zero < 3)
    wording.refuse("strategy.offload.optimizer", format_exact(offload.optimizer),
                   "offloads a part under ZeRO-3 only", "offload: {optimizer: 1}");
}

const char* dtype(Format format) {
  return format == Format::bf16 ? "bf16" : format == Format::fp16 ? "fp16" : "fp32";
}

Json zero_section(const Job& job, const PipelineTemplate& pipeline, const Wording& wording) {
  const Strategy& s = job.strategy;
  Json zero = {{"stage", s.zero}};
  if (s.zero == 0) return zero;
  zero["overlap_comm"] = s.overlap_gradients;
  if (s.overlap_gradients || offloads_optimizer(s)) {
    const std::int64_t width = bytes_of(job.train.gradients);
    if (s.bucket_bytes % width != 0)
      wording.refuse("strategy.overlap.bucket_bytes", std::to_string(s.bucket_bytes),
                     fmt::format("counts a bucket in elements, of {} bytes here", width));
    zero["reduce_bucket_size"] = s.bucket_bytes / width;
  }
  if (s.shard_over > 0 && s.shard_over < pipeline.replicas) zero["mics_shard_size"] = s.shard_over;
  const Offload offload = pipeline.stages.at(0).offload.value_or(s.offload);
  if (offload.optimizer > 0) {
    zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
    if (offload.optimizer < 1) zero["offload_optimizer"]["ratio"] = offload.optimizer;
  }
  return zero;
}

}  // namespace

std::vector<ExportedFile> deepspeed_files(const std::string& name, const Job& job, const Wording& wording) {
  const PipelineTemplate& pipeline = only_template(job.strategy, wording);
  refuse_in_script(job, pipeline, wording);
  refuse_in_zero(job.strategy, pipeline, wording);
  const Train& train = job.train;
  const FrameworkVersion& version = version_of(ExportTarget::deepspeed);
  Json json = {{"motley",
                {{"for", version.text()},
                 {"source", version.source},
                 {"scenario", name},
                 {"strategy", strategy_hash(job.transformer, train, job.strategy)}}},
               {"train_batch_size", train.global_batch},
               {"train_micro_batch_size_per_gpu", pipeline_micro_batch(job, pipeline)},
               {"gradient_accumulation_steps", pipeline.micro_batches}};
  if (train.precision == Format::bf16 || train.precision == Format::fp16)
    json[dtype(train.precision)] = {{"enabled", true}};
  if (train.gradients != Format::tf32) {
    json["data_types"] = {{"grad_accum_dtype", dtype(train.gradients)}};
    json["communication_data_type"] = dtype(train.gradients);
  }
  json["optimizer"] = {{"type", "AdamW"},
                       {"params",
                        {{"lr", train.learning_rate},
                         {"betas", {train.beta1, train.beta2}},
                         {"eps", train.epsilon},
                         {"weight_decay", train.weight_decay}}}};
  json["zero_optimization"] = zero_section(job, pipeline, wording);
  if (const std::int64_t tp = pipeline.stages[0].tensor_parallel; tp > 1)
    json["tensor_parallel"] = {{"autotp_size", tp}};
  return {{"deepspeed.json", json_text(json)}};
}

}  // namespace motley
