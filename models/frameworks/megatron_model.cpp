// The model and the run in Megatron-LM's arguments.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/frameworks/megatron_settings.hpp"

namespace motley {
namespace {

void add(Settings& settings, const char* name, std::int64_t value) {
  settings.push_back({name, {std::to_string(value)}});
}
void add(Settings& settings, const char* name, const std::string& value) {
  settings.push_back({name, {value}});
}
void add_number(Settings& settings, const char* name, double value) {
  settings.push_back({name, {format_exact(value)}});
}
void add_flag(Settings& settings, const char* name) { settings.push_back({name}); }

// A list of ones and zeros by layer, in runs: "([0]*3+[1]*58)".
std::string layer_pattern(std::int64_t layers, const std::vector<std::int64_t>& zeros) {
  std::string text;
  const auto is_zero = [&](std::int64_t layer) {
    return std::binary_search(zeros.begin(), zeros.end(), layer);
  };
  for (std::int64_t first = 0; first < layers;) {
    std::int64_t last = first;
    while (last < layers && is_zero(last) == is_zero(first)) ++last;
    text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", is_zero(first) ? 0 : 1, last - first);
    first = last;
  }
  return fmt::format("({})", text);
}

void add_biases(const Transformer& t, const Wording& wording, Settings& settings) {
  if (t.family == Family::gpt2) return;
  const bool none = !t.output_bias && !t.ffn_bias, all = t.qkv_bias && t.output_bias && t.ffn_bias;
  if (!none && !all)
    wording.refuse(t.output_bias != t.qkv_bias ? "model.output_bias" : "model.ffn_bias", "",
                   "has biases in all linear layers, in queries, keys and values alone, or in none",
                   "qkv_bias, output_bias and ffn_bias are all true, only qkv_bias is, or none is");
  if (none) add_flag(settings, "disable-bias-linear");
  if (none && t.qkv_bias) add_flag(settings, "add-qkv-bias");
}

void add_attention(const Transformer& t, Settings& settings) {
  if (t.latent.used()) {
    add_flag(settings, "multi-latent-attention");
    if (t.latent.q_rank > 0) add(settings, "q-lora-rank", t.latent.q_rank);
    add(settings, "kv-lora-rank", t.latent.kv_rank);
    add(settings, "qk-head-dim", t.head_dim - t.latent.rope_dim);
    add(settings, "qk-pos-emb-head-dim", t.latent.rope_dim);
    add(settings, "v-head-dim", t.latent.value_dim);
    add(settings, "rope-type", "rope");
    add_flag(settings, "qk-layernorm");  // the norms of the latents
    return;
  }
  if (t.heads * t.head_dim != t.hidden) add(settings, "kv-channels", t.head_dim);
  if (t.kv_heads != t.heads) {
    add_flag(settings, "group-query-attention");
    add(settings, "num-query-groups", t.kv_heads);
  }
  if (t.qk_norm) add_flag(settings, "qk-layernorm");
  if (t.sliding_window > 0) {
    // Megatron-LM counts the tokens before the query's own.
    add(settings, "window-size", fmt::format("{},0", t.sliding_window - 1));
    if (!t.full_attention.empty())
      add(settings, "window-attn-skip-freq", layer_pattern(t.layers, t.full_attention));
  }
}

void add_experts(const Transformer& t, const Wording& wording, Settings& settings) {
  const Experts& e = t.experts;
  if (e.count == 0) return;
  if (t.ffn_bias)
    wording.refuse("model.ffn_bias", "true", "gives experts biases, too, where linear layers have them");
  add(settings, "num-experts", e.count);
  add(settings, "moe-router-topk", e.per_token);
  add(settings, "moe-ffn-hidden-size", e.ffn);
  add_flag(settings, "moe-grouped-gemm");
  add(settings, "moe-token-dispatcher-type", "alltoall");
  if (!e.dense_layers.empty()) add(settings, "moe-layer-freq", layer_pattern(t.layers, e.dense_layers));
  if (e.shared_ffn > 0) add(settings, "moe-shared-expert-intermediate-size", e.shared_ffn);
  if (e.shared_gate) add_flag(settings, "moe-shared-expert-gate");
  const bool sigmoid = e.scores == RouterScores::sigmoid;
  if (sigmoid && !e.normalise && e.per_token > 1)
    wording.refuse("model.experts.normalise", "false",
                   "divides sigmoid scores by their sum where a token has several experts");
  if (!sigmoid && e.normalise && e.per_token == 1)
    wording.refuse("model.experts.normalise", "true",
                   "takes the softmax before the choice where a token has one expert");
  if (e.balancing_bias && !sigmoid)
    wording.refuse("model.experts.balancing_bias", "true",
                   "balances with a bias where scores are sigmoid only");
  if (sigmoid) add(settings, "moe-router-score-function", "sigmoid");
  if (!sigmoid && !e.normalise) add_flag(settings, "moe-router-pre-softmax");
  if (e.scale != 1.0) add_number(settings, "moe-router-topk-scaling-factor", e.scale);
  if (e.balancing_bias) add_flag(settings, "moe-router-enable-expert-bias");
  if (e.groups > 1) {
    add(settings, "moe-router-num-groups", e.groups);
    add(settings, "moe-router-group-topk", e.groups_per_token);
  }
}

void add_precision(const Train& train, const Wording& wording, Settings& settings) {
  if (train.precision == Format::tf32)
    wording.refuse("train.precision", "tf32", "has no argument for it", "precision: fp32");
  if (train.precision == Format::bf16) add_flag(settings, "bf16");
  if (train.precision == Format::fp16) add_flag(settings, "fp16");
  const bool in_bf16 = train.precision == Format::bf16 && train.gradients == Format::bf16;
  if (in_bf16) add_flag(settings, "grad-reduce-in-bf16");
  if (train.gradients == Format::fp32 && train.precision != Format::fp32)
    add_flag(settings, "accumulate-allreduce-grads-in-fp32");
  if (train.gradients != Format::fp32 && !in_bf16 &&
      !(train.precision == Format::fp16 && train.gradients == Format::fp16))
    wording.refuse("train.gradients", name_of(train.gradients),
                   fmt::format("has no such gradients where precision is {}", name_of(train.precision)));
  if (train.matmuls == Format::fp8) add(settings, "fp8-format", "hybrid");
  if (train.matmuls == Format::mxfp8) {
    add(settings, "fp8-format", "e4m3");
    add(settings, "fp8-recipe", "mxfp8");
  }
  if (train.matmuls == Format::nvfp4) {
    add(settings, "fp4-format", "e2m1");
    add(settings, "fp4-recipe", "nvfp4");
  }
  if (train.kept_operands != KeptOperands::matmuls)
    wording.refuse("train.kept_operands", name_of(train.kept_operands),
                   "keeps narrow copies of operands (Transformer Engine)", "kept_operands: matmuls");
  if (train.kept_inner)
    wording.refuse("train.kept_inner", name_of(*train.kept_inner), "has no argument for it");
  if (train.expert_dispatch)
    wording.refuse("train.expert_dispatch", name_of(*train.expert_dispatch), "has no argument for it");
}

}  // namespace

Settings megatron_model(const Job& job, const Wording& wording) {
  const Transformer& t = job.transformer;
  const bool llama = t.family == Family::llama;
  if (t.lora.used()) wording.refuse("train.lora", "", "trains no adapters");
  if (const ModelVariant variant = variant_of(t); !variant.key.empty())
    wording.refuse(variant.key, variant.value, "gets no such model from Motley");
  if (t.learned_positions() && job.train.sequence > t.max_positions)
    wording.refuse("train.sequence", std::to_string(job.train.sequence),
                   "has positions for a whole sequence only");
  Settings settings;
  add(settings, "num-layers", t.layers);
  add(settings, "hidden-size", t.hidden);
  add(settings, "ffn-hidden-size", t.ffn);
  add(settings, "num-attention-heads", t.heads);
  add_attention(t, settings);
  add(settings, "seq-length", job.train.sequence);
  add(settings, "max-position-embeddings", std::max(t.max_positions, job.train.sequence));
  if (llama) {
    if (t.rope_theta != std::floor(t.rope_theta))
      wording.refuse("model.rope_theta", format_exact(t.rope_theta), "reads a whole number only");
    add(settings, "position-embedding-type", "rope");
    add(settings, "rotary-base", static_cast<std::int64_t>(t.rope_theta));
    add(settings, "normalization", "RMSNorm");
    add_flag(settings, "swiglu");
  }
  add_number(settings, "norm-epsilon", t.norm_epsilon);
  add_biases(t, wording, settings);
  if (!t.tied_embeddings) add_flag(settings, "untie-embeddings-and-output-weights");
  add(settings, "tokenizer-type", "NullTokenizer");
  add(settings, "vocab-size", t.vocabulary);
  add(settings, "make-vocab-size-divisible-by",
      1);  // beyond that, to a multiple of the tensor-parallel degree
  add_experts(t, wording, settings);
  if (t.trained_extra() > 0) {
    add(settings, "mtp-num-layers", t.trained_extra());
    add_number(settings, "mtp-loss-scaling-factor", t.extra_prediction_weight);
  }
  add(settings, "attention-dropout", 0);
  add(settings, "hidden-dropout", 0);
  return settings;
}

Settings megatron_train(const Job& job, const Wording& wording) {
  const Train& train = job.train;
  Settings settings;
  if (!train.documents.empty())
    wording.refuse("train.documents", "",
                   "reads the lengths of documents from its data, not from an argument",
                   "leave `documents` out");
  const PipelineTemplate& pipeline = only_template(job.strategy, wording);
  add(settings, "micro-batch-size", pipeline_micro_batch(job, pipeline));
  add(settings, "global-batch-size", train.global_batch);
  add(settings, "train-iters", train.steps);
  add_precision(train, wording, settings);
  add(settings, "optimizer", "adam");
  add_number(settings, "lr", train.learning_rate);
  add_number(settings, "adam-beta1", train.beta1);
  add_number(settings, "adam-beta2", train.beta2);
  add_number(settings, "adam-eps", train.epsilon);
  add_number(settings, "weight-decay", train.weight_decay);
  add(settings, "seed", static_cast<std::int64_t>(train.seed));
  return settings;
}

}  // namespace motley
