// Megatron-Bridge's overrides of a recipe: Megatron-LM's arguments under names of its own, as
// docs/megatron-lm-to-megatron-bridge.md and scripts/translate_mlm_to_bridge.py of the version in framework.cpp map
// them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "models/frameworks/export.hpp"
#include "models/frameworks/launch_files.hpp"
#include "models/frameworks/megatron_settings.hpp"

namespace motley {
namespace {

// Arguments that do not become `model.` and their own name.
const std::map<std::string, std::string>& renamed() {
  static const std::map<std::string, std::string> names = {
      {"num-experts", "model.num_moe_experts"},
      {"norm-epsilon", "model.layernorm_epsilon"},
      {"seq-length", "dataset.seq_length"},
      {"vocab-size", "tokenizer.vocab_size"},
      {"tokenizer-type", "tokenizer.tokenizer_type"},
      {"micro-batch-size", "train.micro_batch_size"},
      {"global-batch-size", "train.global_batch_size"},
      {"train-iters", "train.train_iters"},
      {"optimizer", "optimizer.optimizer"},
      {"lr", "optimizer.lr"},
      {"adam-beta1", "optimizer.adam_beta1"},
      {"adam-beta2", "optimizer.adam_beta2"},
      {"adam-eps", "optimizer.adam_eps"},
      {"weight-decay", "optimizer.weight_decay"},
      {"seed", "rng.seed"},
      {"use-distributed-optimizer", "ddp.use_distributed_optimizer"},
      {"num-distributed-optimizer-instances", "ddp.num_distributed_optimizer_instances"},
      {"overlap-grad-reduce", "ddp.overlap_grad_reduce"},
      {"overlap-param-gather", "ddp.overlap_param_gather"},
      {"ddp-bucket-size", "ddp.bucket_size"},
      {"use-precision-aware-optimizer", "optimizer.use_precision_aware_optimizer"},
      {"optimizer-cpu-offload", "optimizer.optimizer_cpu_offload"},
      {"optimizer-offload-fraction", "optimizer.optimizer_offload_fraction"},
  };
  return names;
}

// Arguments that mean the opposite of a key, and the key.
const std::map<std::string, std::string>& inverted() {
  static const std::map<std::string, std::string> names = {
      {"disable-bias-linear", "model.add_bias_linear"},
      {"untie-embeddings-and-output-weights", "model.share_embeddings_and_output_weights"},
      {"no-overlap-p2p-communication", "model.overlap_p2p_comm"},
  };
  return names;
}

// A value in the grammar of Hydra's overrides.
std::string hydra_value(const Setting& setting) {
  if (setting.values.empty()) return "true";
  if (setting.name == "recompute-modules") return fmt::format("[{}]", fmt::join(setting.values, ","));
  if (setting.name == "window-size") return fmt::format("[{}]", setting.values[0]);
  const std::string& value = setting.values[0];
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_.+").find(c) != std::string_view::npos;
  });
  return is_plain ? value : "'" + value + "'";
}

std::string precision_of(const Train& train, const Wording& wording) {
  if (train.gradients != Format::fp32 &&
      !(train.precision == Format::fp16 && train.gradients == Format::fp16))
    wording.refuse("train.gradients", name_of(train.gradients), "reduces in fp32 under its mixed precisions",
                   "gradients: fp32");
  if (train.precision == Format::fp16 && train.gradients == Format::fp32)
    wording.refuse("train.gradients", "fp32", "reduces in fp16 under fp16_mixed", "gradients: fp16");
  if (train.matmuls && train.precision != Format::bf16)
    wording.refuse("train.matmuls", name_of(*train.matmuls), "multiplies narrowly beside bf16 only");
  if (train.matmuls == Format::fp8) return "bf16_with_fp8_current_scaling_mixed";
  if (train.matmuls == Format::mxfp8) return "bf16_with_mxfp8_mixed";
  if (train.matmuls == Format::nvfp4) return "bf16_with_nvfp4_mixed";
  return train.precision == Format::bf16 ? "bf16_mixed" : train.precision == Format::fp16 ? "fp16_mixed" : "";
}

std::vector<std::string> overrides(const Job& job, const Settings& settings, const Wording& wording) {
  std::vector<std::string> lines;
  for (const Setting& setting : settings) {
    const std::string& name = setting.name;
    if (name == "bf16" || name == "fp16" || name == "accumulate-allreduce-grads-in-fp32" ||
        name.starts_with("fp8-") || name.starts_with("fp4-") || name == "group-query-attention")
      continue;  // the mixed precision says it, or the number of query groups
    if (name == "swiglu") {
      lines.insert(lines.end(), {"model.gated_linear_unit=true", "model.activation_func=silu"});
    } else if (inverted().contains(name)) {
      lines.push_back(inverted().at(name) + "=false");
    } else if (renamed().contains(name)) {
      lines.push_back(renamed().at(name) + "=" + hydra_value(setting));
    } else {
      std::string key = "model." + name;
      std::replace(key.begin(), key.end(), '-', '_');
      lines.push_back(key + "=" + hydra_value(setting));
    }
    if (name == "seq-length") lines.push_back("model.seq_length=" + hydra_value(setting));
    if (name == "use-distributed-optimizer") lines.emplace_back("optimizer.use_distributed_optimizer=true");
  }
  const PipelineTemplate& pipeline = only_template(job.strategy, wording);
  if (job.strategy.schedule == Schedule::interleaved) {
    lines.push_back(
        fmt::format("model.virtual_pipeline_model_parallel_size={}", pipeline.stages[0].more.size() + 1));
    if (job.strategy.overlap_p2p)
      lines.insert(lines.end(), {"model.overlap_p2p_comm=true", "model.batch_p2p_comm=false"});
  }
  if (const std::string precision = precision_of(job.train, wording); !precision.empty())
    lines.push_back("mixed_precision=" + precision);
  return lines;
}

}  // namespace

std::vector<ExportedFile> bridge_files(const std::string& name, const Job& job, const Wording& wording,
                                       const ExportOptions& options) {
  if (job.train.gradients == Format::bf16) precision_of(job.train, wording);
  Settings settings = megatron_strategy(job, wording);
  for (const Settings& more : {megatron_model(job, wording), megatron_train(job, wording)})
    settings.insert(settings.end(), more.begin(), more.end());
  std::string text = "#!/bin/bash\n" + export_header(ExportTarget::megatron_bridge, name, job) +
                     environment_of(job.strategy) + "OVERRIDES=(\n";
  for (const std::string& line : overrides(job, settings, wording)) text += "  " + shell_quoted(line) + "\n";
  const RankMap map = map_ranks(job, options.hosts);
  hostfile_text(map, HostfileForm::plain, wording);  // refuses ranks that no order of hosts places
  text += ")\n" + torchrun_line(map) +
          " \\\n  scripts/training/run_recipe.py --recipe vanilla_gpt_pretrain_config --mode pretrain "
          "\"${OVERRIDES[@]}\" \"$@\"\n";
  return {{"megatron-bridge.sh", text}};
}

}  // namespace motley
